"""The least of several loads, ties broken by seeded chance."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.policies.base import DrawsView, RequestView


def least(loads: Sequence[float], request: RequestView, draws: DrawsView) -> int:
    """Index of the smallest load; each of several equal ones has the same chance.

    Taking the first of them would send every request that meets an idle fleet to replica 0.
    """
    smallest = min(loads)
    index = loads.index(smallest)
    ties = loads.count(smallest)
    if ties > 1:
        for _ in range(draws.integer(ties, request.request_id, request.attempt)):
            index = loads.index(smallest, index + 1)
    return index
