"""Tokens per minute: reserve an estimate, reconcile with the true count."""

from __future__ import annotations

from pydantic import Field

from fleetsim.policies.base import ADMITTED, PolicyParams, Verdict
from fleetsim.policies.limits.bucket import Bucket
from fleetsim.policies.registry import register

_EXCEEDS_BURST = Verdict(False, "exceeds_burst")


@register("limits", "token_bucket")
class TokenBucket:
    """Reserves prompt + max_tokens from a bucket of tokens, gives back what was not used.

    An estimate above the bucket's capacity could never be reserved: it is refused with the reason
    exceeds_burst and no Retry-After. One that used more than its estimate leaves a debt.
    """

    class Params(PolicyParams):
        """How fast the bucket fills, and how much it holds."""

        tokens_per_minute: int = Field(ge=1, description="prompt and output tokens per minute")
        burst_tokens: int | None = Field(
            None, ge=1, description="capacity of the bucket; null is one minute's tokens"
        )

    def __init__(self, params: Params) -> None:
        burst_tokens = params.burst_tokens or params.tokens_per_minute
        self._bucket = Bucket(params.tokens_per_minute, burst_tokens)
        self._burst_tokens = burst_tokens

    @property
    def largest_estimate_tokens(self) -> float:
        """The capacity."""
        return self._burst_tokens

    def level_tokens(self, now_s: float) -> float:
        """Tokens in the bucket."""
        return self._bucket.level(now_s)

    def try_reserve(self, now_s: float, estimated_tokens: int) -> Verdict:
        """Take the estimate, or say when it would be there."""
        if self._bucket.take(now_s, estimated_tokens):
            return ADMITTED
        if estimated_tokens > self._burst_tokens:
            return _EXCEEDS_BURST
        wait_s = self._bucket.wait_s(now_s, estimated_tokens)
        return Verdict(False, "rate_limit_tokens", wait_s)

    def reconcile(self, now_s: float, estimated_tokens: int, actual_tokens: int) -> None:
        """Give back what the estimate was too much, or take what it was too little."""
        self._bucket.give(now_s, estimated_tokens - actual_tokens)

    def cancel(self, now_s: float, estimated_tokens: int) -> None:
        """Give the estimate back."""
        self._bucket.give(now_s, estimated_tokens)
