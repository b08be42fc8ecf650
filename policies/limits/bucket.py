"""A bucket that fills at a rate per minute up to a capacity, in exact integers.

In floats, a refill adds up differently for each way of polling it, and the wait that a refusal
quotes may end a hair too early. Here time is whole microseconds and a unit is 60e6 parts, so that
a microsecond adds exactly `per_minute` parts, and the last bits of a float clock do not matter.
"""

from __future__ import annotations

_US_PER_S = 1_000_000
_PARTS = 60 * _US_PER_S  # of one unit


class Bucket:
    """Starts full. What is taken may be given back, and more than that may be taken afterwards."""

    __slots__ = ("_capacity", "_last_us", "_parts", "_per_minute")

    def __init__(self, per_minute: int, capacity: int) -> None:
        self._per_minute = per_minute
        self._capacity = capacity * _PARTS
        self._parts = self._capacity
        self._last_us = 0

    def level(self, now_s: float) -> float:
        """Units in the bucket; below zero after more was used than estimated."""
        self._refill(now_s)
        return self._parts / _PARTS

    def take(self, now_s: float, units: int) -> bool:
        """Take the units if all of them are there."""
        self._refill(now_s)
        if self._parts < units * _PARTS:
            return False
        self._parts -= units * _PARTS
        return True

    def give(self, now_s: float, units: int) -> None:
        """Put units back, up to the capacity; a negative number takes more, even below zero."""
        self._refill(now_s)
        self._parts += units * _PARTS  # what is above the capacity goes at the next refill

    def wait_s(self, now_s: float, units: int) -> float:
        """Seconds until the bucket holds the units if nobody takes any; at most the capacity."""
        self._refill(now_s)
        missing = units * _PARTS - self._parts
        if missing <= 0:
            return 0.0
        ready_us = self._last_us - (-missing // self._per_minute)
        return ready_us / _US_PER_S - now_s

    def _refill(self, now_s: float) -> None:
        now_us = round(now_s * _US_PER_S)
        self._parts = min(self._capacity, self._parts + (now_us - self._last_us) * self._per_minute)
        self._last_us = now_us
