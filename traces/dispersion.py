"""How unevenly requests arrive: variation of the gaps, and dispersion of the counts.

The gaps' coefficient of variation does not see how gaps follow each other: a process whose rate
drifts has gaps that look Poisson, and yet far more requests in one minute than in the next. The
index of dispersion of counts sees that, at each time scale by itself.
"""

from __future__ import annotations

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray

IDC_WINDOWS_S = (1.0, 10.0, 60.0)
"""The windows at which dispersion is reported."""


def interarrival_cv(arrival_s: FloatArray) -> float:
    """Standard deviation of the gaps between arrivals over their mean.

    1 for a Poisson process; NaN with fewer than two arrivals, or when all come at once.

    Args:
        arrival_s: seconds, non-decreasing.
    """
    gaps = np.diff(arrival_s)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return float(gaps.std()) / mean if mean > 0 else float("nan")


def dispersion(arrival_s: FloatArray, window_s: float) -> float:
    """Index of dispersion of counts (IDC): variance over mean of the arrivals per window.

    1 for a Poisson process at every window; below 1 arrivals are more regular, above 1 they clump.
    Windows lie end to end from the first arrival; what is left behind the last whole one is left
    out. NaN where fewer than two windows fit.

    Args:
        arrival_s: seconds, non-decreasing.
        window_s: length of a window.

    Raises:
        InputError: a window that is not a positive number.
    """
    if not 0 < window_s < float("inf"):
        raise InputError(f"window_s {window_s}: must be a positive number of seconds")
    if len(arrival_s) == 0:
        return float("nan")
    since_first_s = arrival_s - arrival_s[0]
    windows = int(since_first_s[-1] // window_s)
    if windows < 2:
        return float("nan")
    numbers = (since_first_s // window_s).astype(np.int64)
    counts = np.bincount(numbers[numbers < windows], minlength=windows)
    return float(counts.var() / counts.mean())
