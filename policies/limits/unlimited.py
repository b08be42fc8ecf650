"""No limit."""

from __future__ import annotations

from math import inf

from fleetsim.policies.base import ADMITTED, Verdict
from fleetsim.policies.registry import register


@register("limits", "unlimited")
class Unlimited:
    """Grants everything."""

    largest_estimate_tokens = inf

    def try_reserve(self, now_s: float, estimated_tokens: int) -> Verdict:
        """Yes."""
        return ADMITTED

    def reconcile(self, now_s: float, estimated_tokens: int, actual_tokens: int) -> None:
        """Nothing to settle."""

    def cancel(self, now_s: float, estimated_tokens: int) -> None:
        """Nothing to give back."""
