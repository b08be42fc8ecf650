"""A limit that must lose."""

from __future__ import annotations

from fleetsim.policies.limits.token_bucket import TokenBucket
from fleetsim.policies.registry import register


@register("limits", "reserve_only")
class ReserveOnly(TokenBucket):
    """DELIBERATELY BAD: a token_bucket that never reconciles, so max_tokens is what you pay."""

    def reconcile(self, now_s: float, estimated_tokens: int, actual_tokens: int) -> None:
        """Keep the whole estimate."""
