"""The replica with the fewest tokens."""

from __future__ import annotations

from fleetsim.policies.base import Decision, DrawsView, PoolView, RequestView
from fleetsim.policies.registry import register
from fleetsim.policies.routing.ties import least


@register("routing", "least_tokens")
class LeastTokens:
    """The replica with the fewest outstanding tokens, queued and running ones alike.

    Work is proportional to tokens: one request can be a thousand times another.
    """

    needs_scraped = False
    needs_prefix = False

    def choose(self, request: RequestView, pool: PoolView, draws: DrawsView) -> Decision:
        """The least of all; ties are drawn."""
        loads = [replica.outstanding_tokens for replica in pool.replicas]
        target = least(loads, request, draws)
        return Decision(target, "least_tokens", (loads[target],))
