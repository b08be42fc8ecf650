"""Curves that a rate may follow: a day, a week, a flash crowd, any given one.

A curve gives the rate at each time, relative to nothing in particular: only its shape counts.
Several curves multiply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray

DAY_S = 86400.0


class Curve(Protocol):
    """A relative rate over time."""

    def rate(self, time_s: FloatArray) -> FloatArray:
        """Give the relative rate at times from the trace's start, at least 0."""
        ...


@dataclass(frozen=True, slots=True)
class Day:
    """A rate that rises and falls once a period.

    Attributes:
        peak_to_trough: highest rate over lowest.
        shape: "sinusoid" spends as long above its mean as below, with a peak of
            2 r / (r + 1) times the mean (1.82 for r = 10); "log_sinusoid" is one in the logarithm,
            with a sharper peak (2.33 times the mean for r = 10).
        period_s: of one rise and fall.
        peak_at_s: time of a peak.
    """

    peak_to_trough: float = 10.0
    shape: Literal["sinusoid", "log_sinusoid"] = "sinusoid"
    period_s: float = DAY_S
    peak_at_s: float = DAY_S / 2

    def __post_init__(self) -> None:
        _positive("day: period_s", self.period_s)
        if not 1 <= self.peak_to_trough < math.inf:
            raise InputError(f"day: peak_to_trough {self.peak_to_trough}: must be at least 1")

    def rate(self, time_s: FloatArray) -> FloatArray:
        """Give the rate, 1 at the trough."""
        wave = np.cos(2 * np.pi * (time_s - self.peak_at_s) / self.period_s)
        if self.shape == "log_sinusoid":
            return np.asarray(self.peak_to_trough ** ((1 + wave) / 2))
        return 1 + (self.peak_to_trough - 1) * (1 + wave) / 2


@dataclass(frozen=True, slots=True)
class Week:
    """A factor for each day of the week, from midnight to midnight.

    Attributes:
        factors: seven, from Monday to Sunday.
        first_day: the day on which the trace begins, at midnight: 0 is Monday.
        day_s: length of a day.
    """

    factors: tuple[float, ...]
    first_day: int = 0
    day_s: float = DAY_S

    def __post_init__(self) -> None:
        _positive("week: day_s", self.day_s)
        if len(self.factors) != 7:
            raise InputError(f"week: {len(self.factors)} factors; must be 7, Monday to Sunday")
        if not all(0 <= f < math.inf for f in self.factors) or not any(self.factors):
            raise InputError("week: factors must be at least 0, and one of them above")
        if not 0 <= self.first_day <= 6:
            raise InputError(f"week: first_day {self.first_day}: must be 0 (Monday) to 6 (Sunday)")

    def rate(self, time_s: FloatArray) -> FloatArray:
        """Give the day's factor."""
        day = (np.floor(time_s / self.day_s).astype(np.int64) + self.first_day) % 7
        return np.array(self.factors, np.float64)[day]


@dataclass(frozen=True, slots=True)
class FlashCrowd:
    """A rate that jumps, stays, and dies down; 1 before and long after.

    Attributes:
        at_s: when it begins to rise.
        factor: how many times the usual rate, at its height.
        ramp_s: from the usual rate to the height, straight.
        hold_s: at the height.
        decay_s: time constant of the exponential way back; 0 ends at once.
    """

    at_s: float
    factor: float = 5.0
    ramp_s: float = 30.0
    hold_s: float = 300.0
    decay_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("at_s", "ramp_s", "hold_s", "decay_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"flash_crowd: {name} {value}: must be at least 0 seconds")
        _positive("flash_crowd: factor", self.factor)

    def rate(self, time_s: FloatArray) -> FloatArray:
        """Give the rate, 1 in calm times."""
        since = time_s - self.at_s
        height = np.clip(since / self.ramp_s, 0, 1) if self.ramp_s > 0 else 1.0 * (since >= 0)
        after = np.maximum(since - self.ramp_s - self.hold_s, 0.0)
        fall = np.exp(-after / self.decay_s) if self.decay_s > 0 else 1.0 * (after <= 0)
        return np.asarray(1 + (self.factor - 1) * height * fall, np.float64)


@dataclass(frozen=True, slots=True)
class Points:
    """A rate through given points: straight between them, level before and after.

    Attributes:
        points: (seconds from the trace's start, relative rate), times rising.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        times = [time for time, _ in self.points]
        rates = [rate for _, rate in self.points]
        if not times or not all(a < b for a, b in pairwise(times)):
            raise InputError("points: times must rise, and be at least one")
        if not all(0 <= rate < math.inf for rate in rates) or not any(rates):
            raise InputError("points: rates must be at least 0, and one of them above")

    def rate(self, time_s: FloatArray) -> FloatArray:
        """Give the rate between the points."""
        times, rates = zip(*self.points, strict=True)
        return np.asarray(np.interp(time_s, times, rates), np.float64)


def _positive(what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(f"{what} {value}: must be a positive number")
