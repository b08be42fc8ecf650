"""A random sample of replicas from one keyed draw."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def sample(n: int, k: int, bits: int) -> tuple[int, ...]:
    """k different integers in [0, n) in random order, 0 <= k <= n, all from 64 random bits.

    The first k steps of a Fisher-Yates shuffle, which touch k places of n, fed by SplitMix64
    (Steele, Lea and Flood, OOPSLA 2014) started at `bits`.
    """
    moved: dict[int, int] = {}
    chosen = []
    for i in range(k):
        bits = (bits + 0x9E3779B97F4A7C15) & _MASK
        x = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        j = i + ((x ^ (x >> 31)) * (n - i) >> 64)
        chosen.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return tuple(chosen)
