"""The replica with the fewest requests."""

from __future__ import annotations

from fleetsim.policies.base import Decision, DrawsView, PoolView, RequestView
from fleetsim.policies.registry import register
from fleetsim.policies.routing.ties import least


@register("routing", "least_requests")
class LeastRequests:
    """The replica with the fewest outstanding requests, queued and running ones alike."""

    needs_scraped = False
    needs_prefix = False

    def choose(self, request: RequestView, pool: PoolView, draws: DrawsView) -> Decision:
        """The least of all; ties are drawn."""
        loads = [replica.outstanding_requests for replica in pool.replicas]
        target = least(loads, request, draws)
        return Decision(target, "least_requests", (loads[target],))
