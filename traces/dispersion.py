"""How clumped arrivals are, at a given time scale."""

from __future__ import annotations

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray


def index_of_dispersion(arrival_s: FloatArray, window_s: float) -> float:
    """Variance over mean of the number of arrivals per window (IDC).

    1 for a Poisson process at any window length; more where arrivals come in clumps that last
    about a window or longer, which the coefficient of variation of the gaps does not see.

    Args:
        arrival_s: seconds from the first arrival, non-decreasing.
        window_s: length of a window. Windows follow one another from 0; the last one, in which
            the trace ends, is cut short and left out.

    Returns:
        The index; NaN where there are fewer than two whole windows.

    Raises:
        InputError: a window that is not a positive finite number.
    """
    if not (np.isfinite(window_s) and window_s > 0):
        raise InputError(f"window {window_s} s: must be a positive number of seconds")
    windows = int(arrival_s[-1] // window_s)
    if windows < 2:
        return float("nan")
    counts = np.bincount((arrival_s // window_s).astype(np.int64), minlength=windows)[:windows]
    return float(counts.var() / counts.mean())
