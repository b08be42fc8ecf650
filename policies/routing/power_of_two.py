"""Two choices: look at two replicas drawn at random, take the less loaded one."""

from __future__ import annotations

from pydantic import Field

from fleetsim.policies.base import Decision, DrawsView, PolicyParams, PoolView, RequestView
from fleetsim.policies.registry import register
from fleetsim.policies.routing.sampling import sample


@register("routing", "power_of_two")
class PowerOfTwo:
    """The least loaded of d replicas drawn at random, less what their prefix caches save.

    Effective load = queued_tokens + running_weight * running_tokens - prefix_bonus *
    cached_tokens(request). Two choices bring the maximum load of n bins from order
    log n / log log n to log log n (Azar, Broder, Karlin and Upfal 1994; Mitzenmacher 1996), at
    the cost of looking at two replicas whatever the size of the pool. Of equal loads the one
    drawn first wins.
    """

    class Params(PolicyParams):
        """What counts as load, and how many replicas to look at."""

        d: int = Field(2, ge=1, description="replicas to look at")
        running_weight: float = Field(
            0.5, ge=0, description="load of a running context token, in queued tokens"
        )
        prefix_bonus: float = Field(
            1.0, ge=0, description="load forgiven per cached prompt token; 0 ignores the caches"
        )

    needs_scraped = False
    needs_prefix = True

    def __init__(self, params: Params) -> None:
        self._d = params.d
        self._running_weight = params.running_weight
        self._prefix_bonus = params.prefix_bonus
        self.needs_prefix = params.prefix_bonus > 0

    def choose(self, request: RequestView, pool: PoolView, draws: DrawsView) -> Decision:
        """The drawn replica with the least effective load."""
        replicas = pool.replicas
        n = len(replicas)
        d = self._d if self._d < n else n
        drawn = (
            draws.pair(n, request.request_id, request.attempt)
            if d == 2
            else sample(n, d, draws.bits(request.request_id, request.attempt))
        )
        weight = self._running_weight
        bonus = self._prefix_bonus if request.prefix else 0.0
        target = -1
        best = 0.0
        others: list[float] = []
        for index in drawn:
            replica = replicas[index]
            load = replica.queued_tokens + weight * replica.running_tokens
            if bonus:
                load -= bonus * replica.cached_tokens(request)
            if target < 0:
                target, best = index, load
            elif load < best:
                others.append(best)
                target, best = index, load
            else:
                others.append(load)
        return Decision(target, "least_effective_load", (best, *others))
