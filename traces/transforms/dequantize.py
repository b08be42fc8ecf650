"""Arrivals that were stamped in batches, spread over the time that a stamp stands for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace
from fleetsim.traces.transforms.layout import at_times
from fleetsim.traces.transforms.record import draws, recorded
from fleetsim.traces.transforms.sessions import find_sessions

_FINER_GAPS = 0.01  # share of the gaps between stamps that may be shorter than a tick


def dequantize(trace: Trace, tick_s: float | None = None, *, seed: int) -> Trace:
    """Add a uniform time to each arrival, from 0 to the tick or the next stamp, whichever is less.

    So requests of different stamps never change places, and those of one session keep their order
    within a stamp too. It takes away the bursts that the stamps made up, and with them whatever
    real burst was shorter than a tick: afterwards the trace says nothing about those, either way.

    Args:
        trace: stays as it is.
        tick_s: time that a stamp stands for; None takes ``metadata.time_resolution_s``.
        seed: of the draw.

    Raises:
        InputError: no tick known, not a positive number, or stamps closer together than it.
    """
    if tick_s is None:
        tick_s = trace.metadata.time_resolution_s
        if tick_s is None:
            raise InputError(
                "dequantize: the trace does not know on what grid it was stamped; give tick_s"
            )
    if not (math.isfinite(tick_s) and tick_s > 0):
        raise InputError(f"dequantize: tick_s {tick_s} must be a positive number of seconds")
    stamps, stamp = np.unique(trace.arrival_s, return_inverse=True)
    stamp = stamp.reshape(-1)
    gaps = np.diff(stamps)
    finer = int((gaps < 0.9 * tick_s).sum())
    if finer > _FINER_GAPS * len(gaps):
        raise InputError(
            f"dequantize: tick_s {tick_s:g}: {finer} of {len(gaps)} stamps follow the one before "
            f"sooner than that; give the grid of the stamps (half of them are within "
            f"{np.median(gaps):g} s)"
        )
    room_s = np.minimum(np.append(gaps, tick_s), tick_s)
    uniform = draws(trace, "dequantize", seed).random(len(trace))
    session = find_sessions(trace).of
    in_place = np.lexsort((session, stamp))  # stable: a session's requests in their order
    rising = np.lexsort((uniform, session, stamp))
    spread = np.empty_like(uniform)
    spread[in_place] = uniform[rising]
    moved = at_times(trace, trace.arrival_s + spread * room_s[stamp])
    warning = (
        f"arrivals were spread at random within ticks of {tick_s:g} s: bursts shorter than that "
        "are neither shown nor excluded"
    )
    metadata = replace(
        moved.metadata, time_resolution_s=None, warnings=(*moved.metadata.warnings, warning)
    )
    return recorded(
        replace(moved, metadata=metadata), "dequantize", tick_s=float(tick_s), seed=seed
    )
