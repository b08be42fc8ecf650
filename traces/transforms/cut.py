"""A part of a trace: a window of time, or its first requests."""

from __future__ import annotations

import math

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace
from fleetsim.traces.transforms.record import recorded


def window(trace: Trace, from_s: float, to_s: float) -> Trace:
    """Keep the requests that arrive from ``from_s`` up to, but not at, ``to_s``.

    The first of them arrives at 0. A request whose parent came before the window comes at its own
    time. What lies outside is accounted as dropped by ``window``.

    Raises:
        InputError: no such window, or nothing arrives in it.
    """
    if not (math.isfinite(from_s) and math.isfinite(to_s) and 0 <= from_s < to_s):
        raise InputError(f"window {from_s:g} to {to_s:g} s: must begin at 0 or later and end later")
    rows = np.flatnonzero((trace.arrival_s >= from_s) & (trace.arrival_s < to_s))
    if len(rows) == 0:
        raise InputError(
            f"window {from_s:g} to {to_s:g} s: nothing arrives in it; the last of the trace's "
            f"requests arrives at {trace.arrival_s[-1]:g} s"
        )
    return recorded(trace.take(rows, "window"), "window", from_s=from_s, to_s=to_s)


def head(trace: Trace, count: int) -> Trace:
    """Keep the first ``count`` requests; the others are accounted as dropped by ``head``.

    A trace with no more than that stays as it is.

    Raises:
        InputError: a count below 1.
    """
    if count < 1:
        raise InputError(f"head {count}: must be at least 1 request")
    if count >= len(trace):
        return trace
    return recorded(trace.take(np.arange(count), "head"), "head", count=count)
