"""A routing policy that must lose."""

from __future__ import annotations

from fleetsim.policies.base import Decision, DrawsView, PoolView, RequestView
from fleetsim.policies.registry import register


@register("routing", "always_first")
class AlwaysFirst:
    """DELIBERATELY BAD: everything to the first replica. An experiment where it wins is wrong."""

    needs_scraped = False
    needs_prefix = False

    def choose(self, request: RequestView, pool: PoolView, draws: DrawsView) -> Decision:
        """Index 0."""
        return Decision(0, "always_first")
