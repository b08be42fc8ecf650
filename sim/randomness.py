"""Chance, keyed by who asks and what for, never by the order of asking.

A draw is a hash of (seed, purpose, entity, attempt): adding a consumer shifts nobody else, and
two scenarios that differ in one policy see the same faults, jitter and start-up times.
"""

from __future__ import annotations

from hashlib import blake2b

_MASK = (1 << 64) - 1
_TO_UNIT = 2.0**-53


class Draws:
    """Random numbers for one purpose, such as "routing/chat".

    Every method takes the entity (a request's, replica's or node's number) and the attempt; the
    same arguments give the same number, whenever and however often they are asked for.
    """

    __slots__ = ("_key",)

    def __init__(self, seed: int, purpose: str) -> None:
        digest = blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
        self._key = int.from_bytes(digest, "little")

    def bits(self, entity: int, attempt: int = 0) -> int:
        """64 random bits.

        The counter (two odd multiples, so that small entities and attempts never collide) goes
        through the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        """
        x = self._key + entity * 0x9E3779B97F4A7C15 + attempt * 0xD1B54A32D192ED03 & _MASK
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
        return x ^ x >> 31

    def uniform(self, entity: int, attempt: int = 0) -> float:
        """A float in [0, 1)."""
        return (self.bits(entity, attempt) >> 11) * _TO_UNIT

    def integer(self, n: int, entity: int, attempt: int = 0) -> int:
        """An integer in [0, n). The bias is below n / 2**64."""
        return self.bits(entity, attempt) * n >> 64

    def pair(self, n: int, entity: int, attempt: int = 0) -> tuple[int, int]:
        """Two different integers in [0, n), n >= 2; bias below n / 2**32."""
        bits = self.bits(entity, attempt)
        first = (bits >> 32) * n >> 32
        second = (bits & 0xFFFFFFFF) * (n - 1) >> 32
        return first, second + (second >= first)


class Randomness:
    """The source of all `Draws` of one simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def draws(self, purpose: str) -> Draws:
        """The draws for a purpose; the same name gives the same draws."""
        return Draws(self.seed, purpose)
