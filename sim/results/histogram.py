"""A histogram of durations on fixed logarithmic bins: small, mergeable, independent of order."""

from __future__ import annotations

from array import array
from math import ceil, inf, log, nan

import numpy as np
import numpy.typing as npt

LOWEST_S = 1e-5
HIGHEST_S = 1e4
BINS_PER_DECADE = 232
"""Each bin is 0.997 % wide: 10 ** (1 / 232) = 1.00997."""

_DECADES = 9
_BINS = BINS_PER_DECADE * _DECADES
_BIN_LOG = log(10.0) / BINS_PER_DECADE
_LOG_LOWEST = log(LOWEST_S)
_BUFFER = 4096
_TICKS_PER_S = 2.0**40
_LOW_BITS = 20


class LogHistogram:
    """Durations from 10 microseconds to 10,000 seconds in 2,088 bins, each about 1 % wide.

    Two more bins take what lies below and above. Count is exact. The sum is exact to 2**-41 s a
    value (it is kept as an integer), so it does not depend on the order in which values came,
    nor on how histograms were merged. A quantile is off by at most half a bin, 0.5 % of its
    value, if it lies within the bins.
    """

    __slots__ = ("_counts", "_maximum_s", "_minimum_s", "_ticks", "_values", "_weights")

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS + 2, np.int64)
        self._ticks = 0
        self._minimum_s = inf
        self._maximum_s = -inf
        self._values = array("d")
        self._weights = array("q")

    def add_one(self, value_s: float, weight: int = 1) -> None:
        """Count one duration, weight times (weight: a whole number from 1 to 65,535)."""
        values = self._values
        values.append(value_s)
        self._weights.append(weight)
        if len(values) >= _BUFFER:
            self._settle()

    def add(
        self, values_s: npt.NDArray[np.float64], weight: int | npt.NDArray[np.int64] = 1
    ) -> None:
        """Count each of these durations, weight times (one weight for all, or one each).

        Raises:
            ValueError: when there is not one weight for each duration.
        """
        if isinstance(weight, int):
            self._weights.extend([weight] * len(values_s))
        else:
            if len(weight) != len(values_s):
                raise ValueError(f"{len(values_s)} durations, {len(weight)} weights")
            self._weights.frombytes(weight.astype(np.int64).tobytes())
        self._values.frombytes(values_s.tobytes())
        if len(self._values) >= _BUFFER:
            self._settle()

    def merge(self, other: LogHistogram) -> None:
        """Count all that the other has counted; the other stays as it is."""
        self._settle()
        other._settle()
        self._counts += other._counts
        self._ticks += other._ticks
        self._minimum_s = min(self._minimum_s, other._minimum_s)
        self._maximum_s = max(self._maximum_s, other._maximum_s)

    @property
    def count(self) -> int:
        """How many durations were counted, with their weights."""
        self._settle()
        return int(self._counts.sum())

    @property
    def sum_s(self) -> float:
        """Sum of all durations, each times its weight."""
        self._settle()
        return self._ticks / _TICKS_PER_S

    @property
    def mean_s(self) -> float:
        """Mean duration; NaN when nothing was counted."""
        count = self.count
        return self.sum_s / count if count else nan

    @property
    def maximum_s(self) -> float:
        """The longest duration; NaN when nothing was counted."""
        return self._maximum_s if self.count else nan

    def quantile(self, q: float) -> float:
        """The duration at rank ceil(q * count), q in [0, 1]; NaN when nothing was counted.

        The geometric middle of the bin in which that rank lies, held within the smallest and
        largest value seen: at most 0.5 % off. In the bins below 10 us and above 10,000 s it is
        the smallest and the largest value seen.
        """
        count = self.count
        if not count:
            return nan
        rank = max(1, ceil(q * count))
        index = int(np.searchsorted(np.cumsum(self._counts), rank))
        if index == 0:
            return self._minimum_s
        if index == _BINS + 1:
            return self._maximum_s
        middle_s = LOWEST_S * 10.0 ** ((index - 0.5) / BINS_PER_DECADE)
        return float(min(max(middle_s, self._minimum_s), self._maximum_s))

    def bins(
        self,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Lower edges, upper edges and counts of the bins that are not empty, in order."""
        self._settle()
        edges = np.concatenate(
            ([0.0], LOWEST_S * 10.0 ** (np.arange(_BINS + 1) / BINS_PER_DECADE), [inf])
        )
        filled = np.flatnonzero(self._counts)
        return edges[filled], edges[filled + 1], self._counts[filled]

    def _settle(self) -> None:
        if not self._values:
            return
        values = np.frombuffer(self._values)
        # Named int64: by itself numpy takes a "q" for its long long, and converts one by one.
        weights = np.frombuffer(self._weights, np.int64)
        self._values, self._weights = array("d"), array("q")
        self._tally(values, weights)

    def _tally(self, values: npt.NDArray[np.float64], weights: npt.NDArray[np.int64]) -> None:
        bins = np.floor((np.log(np.maximum(values, 1e-300)) - _LOG_LOWEST) / _BIN_LOG) + 1.0
        index = np.clip(bins, 0, _BINS + 1).astype(np.int64)
        np.add.at(self._counts, index, weights)
        # Two halves, so that neither product overflows 64 bits.
        ticks = np.rint(values * _TICKS_PER_S).astype(np.int64)
        high = int(np.sum((ticks >> _LOW_BITS) * weights))
        low = int(np.sum((ticks & ((1 << _LOW_BITS) - 1)) * weights))
        self._ticks += (high << _LOW_BITS) + low
        self._minimum_s = min(self._minimum_s, float(values.min()))
        self._maximum_s = max(self._maximum_s, float(values.max()))
