"""The rate of arrivals as a curve, integrated: how many have come by a given time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fleetsim.traces.dispersion import index_of_dispersion
from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray

_WINDOWS_S = (1, 10, 60)


@dataclass(frozen=True, slots=True, eq=False)
class CumulativeRate:
    """Arrivals expected by a time: rising, linear between the knots.

    Attributes:
        at_s: the knots' times, rising.
        expected: arrivals expected by then, not falling.
    """

    at_s: FloatArray
    expected: FloatArray

    @classmethod
    def of(cls, arrival_s: FloatArray, bin_s: float) -> CumulativeRate:
        """Integrate the rate of a trace: constant within bins from the first arrival on.

        The last bin ends with the last arrival, which closes it, so that the curve ends there
        with the number of gaps. Where all arrive at once there is no rate.

        Raises:
            InputError: a bin that is not a positive number, or no time between the arrivals.
        """
        if not (math.isfinite(bin_s) and bin_s > 0):
            raise InputError(f"bin_s {bin_s}: must be a positive number of seconds")
        end_s = float(arrival_s[-1])
        if end_s <= 0:
            raise InputError("all requests arrive at once, so there is no rate to follow")
        edges = np.append(np.arange(0.0, end_s, bin_s), end_s)
        by_then = np.searchsorted(arrival_s, edges, side="left").astype(np.float64)
        by_then[-1] = len(arrival_s) - 1
        return cls(edges, by_then)

    def by(self, time_s: FloatArray) -> FloatArray:
        """Tell how many are expected by each time."""
        return np.interp(time_s, self.at_s, self.expected)

    def when(self, expected: FloatArray) -> FloatArray:
        """Tell when so many are expected: during a pause, at its end."""
        return np.interp(expected, self.expected, self.at_s)


def gaps_cv(arrival_s: FloatArray) -> float:
    """Standard deviation of the gaps over their mean; NaN where there are none above 0."""
    gaps = np.diff(arrival_s)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return float(gaps.std()) / mean if mean > 0 else float("nan")


def variability(arrival_s: FloatArray) -> dict[str, float]:
    """Measure what a transform has to report: gaps' CV, and IDC at 1, 10 and 60 s.

    What cannot be measured, because too few windows fit, is left out.
    """
    since_s = arrival_s - arrival_s[0]
    found = {"cv": gaps_cv(since_s)}
    found |= {f"idc_{window}s": index_of_dispersion(since_s, window) for window in _WINDOWS_S}
    return {name: round(value, 4) for name, value in found.items() if math.isfinite(value)}
