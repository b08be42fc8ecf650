"""Each replica in turn."""

from __future__ import annotations

from fleetsim.policies.base import Decision, DrawsView, PoolView, RequestView
from fleetsim.policies.registry import register


@register("routing", "round_robin")
class RoundRobin:
    """Each replica in turn, whatever it has to do: balances requests, not tokens."""

    needs_scraped = False
    needs_prefix = False

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, request: RequestView, pool: PoolView, draws: DrawsView) -> Decision:
        """The next index; after a replica came or went, the turn goes on from there."""
        target = self._turn % len(pool.replicas)
        self._turn = target + 1
        return Decision(target, "turn")
