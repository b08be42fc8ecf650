"""Any replica, with equal chance."""

from __future__ import annotations

from fleetsim.policies.base import Decision, DrawsView, PoolView, RequestView
from fleetsim.policies.registry import register


@register("routing", "random")
class RandomChoice:
    """Any replica with equal chance; looks at nothing. The baseline to beat."""

    needs_scraped = False
    needs_prefix = False

    def choose(self, request: RequestView, pool: PoolView, draws: DrawsView) -> Decision:
        """A drawn replica."""
        n = len(pool.replicas)
        return Decision(draws.integer(n, request.request_id, request.attempt), "random")
