"""Time itself, faster or slower."""

from __future__ import annotations

import math
from dataclasses import replace

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace
from fleetsim.traces.transforms.record import recorded


def time_scale(trace: Trace, factor: float) -> Trace:
    """Compress time: arrivals and think times divided by ``factor``, lengths and order untouched.

    It raises the rate by the factor, but it is not more users: turns come closer together, bursts
    get shorter, and what is in the cache is younger. :func:`superpose` raises the rate without
    that.

    Raises:
        InputError: a factor that is not a positive finite number.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise InputError(f"time_scale {factor}: must be a positive number, such as 2")
    resolution = trace.metadata.time_resolution_s
    faster = replace(
        trace,
        arrival_s=trace.arrival_s / factor,
        think_s=None if trace.think_s is None else trace.think_s / factor,
        metadata=replace(
            trace.metadata, time_resolution_s=None if resolution is None else resolution / factor
        ),
    )
    scaled = None if trace.think_s is None else True
    return recorded(faster, "time_scale", factor=factor, think_s_scaled=scaled)
