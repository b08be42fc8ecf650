"""Requests per minute, blind to their size."""

from __future__ import annotations

from math import inf

from pydantic import Field

from fleetsim.policies.base import ADMITTED, PolicyParams, Verdict
from fleetsim.policies.limits.bucket import Bucket
from fleetsim.policies.registry import register


@register("limits", "requests_per_minute")
class RequestsPerMinute:
    """A bucket of requests. Alone it is a poor limit: one request can be a thousand others."""

    class Params(PolicyParams):
        """How fast the bucket fills, and how much it holds."""

        requests_per_minute: int = Field(ge=1, description="requests per minute")
        burst_requests: int | None = Field(
            None, ge=1, description="capacity of the bucket; null is one minute's requests"
        )

    largest_estimate_tokens = inf

    def __init__(self, params: Params) -> None:
        burst_requests = params.burst_requests or params.requests_per_minute
        self._bucket = Bucket(params.requests_per_minute, burst_requests)

    def try_reserve(self, now_s: float, estimated_tokens: int) -> Verdict:
        """Take one request, or say when it would be there."""
        if self._bucket.take(now_s, 1):
            return ADMITTED
        return Verdict(False, "rate_limit_requests", self._bucket.wait_s(now_s, 1))

    def reconcile(self, now_s: float, estimated_tokens: int, actual_tokens: int) -> None:
        """A request that was made stays counted."""

    def cancel(self, now_s: float, estimated_tokens: int) -> None:
        """Give the request back."""
        self._bucket.give(now_s, 1)
