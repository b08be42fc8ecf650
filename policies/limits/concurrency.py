"""Requests in flight."""

from __future__ import annotations

from math import inf

from pydantic import Field

from fleetsim.policies.base import ADMITTED, PolicyParams, Verdict
from fleetsim.policies.registry import register

# nobody knows when one of those in flight will end: no Retry-After
_REFUSED = Verdict(False, "concurrency_limit")


@register("limits", "concurrency")
class Concurrency:
    """At most so many requests in flight at once."""

    class Params(PolicyParams):
        """The cap."""

        max_in_flight: int = Field(ge=1, description="requests admitted and not ended")

    largest_estimate_tokens = inf

    def __init__(self, params: Params) -> None:
        self._max_in_flight = params.max_in_flight
        self._in_flight = 0

    def try_reserve(self, now_s: float, estimated_tokens: int) -> Verdict:
        """Take a place if one is free."""
        if self._in_flight >= self._max_in_flight:
            return _REFUSED
        self._in_flight += 1
        return ADMITTED

    def reconcile(self, now_s: float, estimated_tokens: int, actual_tokens: int) -> None:
        """Free the place."""
        self._in_flight -= 1

    def cancel(self, now_s: float, estimated_tokens: int) -> None:
        """Free the place."""
        self._in_flight -= 1
