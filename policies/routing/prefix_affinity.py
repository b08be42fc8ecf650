"""Go where the prompt's start is cached, unless that replica is too busy."""

from __future__ import annotations

from pydantic import Field

from fleetsim.policies.base import Decision, DrawsView, PolicyParams, PoolView, RequestView
from fleetsim.policies.registry import register
from fleetsim.policies.routing.ties import least


@register("routing", "prefix_affinity")
class PrefixAffinity:
    """The longest cached prefix among replicas that are not overloaded, else the fewest tokens.

    Overloaded means more outstanding tokens than load_factor times the pool's mean: consistent
    hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018) with the cache in the
    hash's place. So one hot prefix spreads over as many replicas as its load needs. Equal
    prefixes, no prefix among them, are decided by the fewest outstanding tokens, then by draw.
    """

    class Params(PolicyParams):
        """When a replica counts as overloaded."""

        load_factor: float = Field(
            1.5, ge=1, description="overloaded above this many times the mean outstanding tokens"
        )
        guard_floor_tokens: int = Field(
            8192, ge=0, description="a replica with at most so many tokens is never overloaded"
        )

    needs_scraped = False
    needs_prefix = True

    def __init__(self, params: Params) -> None:
        self._load_factor = params.load_factor
        self._guard_floor_tokens = params.guard_floor_tokens

    def choose(self, request: RequestView, pool: PoolView, draws: DrawsView) -> Decision:
        """The best of the replicas under the bound; the least loaded one always is."""
        replicas = pool.replicas
        loads = [replica.outstanding_tokens for replica in replicas]
        mean = sum(loads) / len(loads)
        bound = max(self._guard_floor_tokens, self._load_factor * mean)
        longest = 0
        holders: list[int] = []
        for index, load in enumerate(loads):
            if load > bound:
                continue
            cached = replicas[index].cached_tokens(request)
            if cached > longest:
                longest = cached
                holders = [index]
            elif cached == longest:
                holders.append(index)
        held = [loads[index] for index in holders]
        best = least(held, request, draws)
        reason = "cached_prefix" if longest else "least_tokens"
        return Decision(holders[best], reason, (held[best],))
