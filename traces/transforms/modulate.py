"""Arrivals bent to a target curve, as many in the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray, Trace
from fleetsim.traces.transforms.curves import Curve
from fleetsim.traces.transforms.layout import at_times, own_time
from fleetsim.traces.transforms.rate import CumulativeRate, variability
from fleetsim.traces.transforms.record import recorded

_LEAST_STEPS, _MOST_STEPS = 10_000, 1_000_000


def modulate(trace: Trace, curves: Sequence[Curve], *, bin_s: float = 600.0) -> Trace:
    """Move the arrivals so that their rate follows the product of the curves.

    t' = L_target^-1(L_source(t)): L_source integrates the trace's own rate, measured in bins, and
    L_target the curve, scaled to the same number of requests in the same time. So the mean rate,
    the order and the lengths stay, and times within a session stretch and shrink with the rate.
    Fluctuation of the trace within a bin stays, relative to the rate; that between bins is taken
    for the trace's own curve, and goes. Wall-clock time means nothing afterwards.

    Requests in a closed loop move with the request that starts the loop. Nothing is drawn.

    Args:
        trace: stays as it is.
        curves: at least one.
        bin_s: in which the trace's own rate is measured; one as long as the trace takes it for
            constant.

    Raises:
        InputError: no curve, a curve that is 0 throughout, a bin that is not positive, a trace
            whose requests arrive at once.
    """
    if not curves:
        raise InputError("modulate: give at least one curve")
    own = own_time(trace)
    source = CumulativeRate.of(trace.arrival_s[own], bin_s)
    target = _integrated(curves, float(source.at_s[-1]), float(source.expected[-1]))
    arrival_s = trace.arrival_s.copy()
    arrival_s[own] = target.when(source.by(trace.arrival_s[own]))
    moved = at_times(trace, arrival_s)
    found = variability(arrival_s[own])
    return recorded(
        replace(moved, metadata=replace(moved.metadata, t0_iso=None)),
        "modulate",
        curves=[repr(curve) for curve in curves],
        bin_s=bin_s,
        **{f"reached_{name}": value for name, value in found.items()},
    )


def _integrated(curves: Sequence[Curve], end_s: float, requests: float) -> CumulativeRate:
    steps = int(np.clip(end_s, _LEAST_STEPS, _MOST_STEPS))
    at_s = np.linspace(0.0, end_s, steps + 1)
    middle_s: FloatArray = (at_s[:-1] + at_s[1:]) / 2
    rate = np.prod([curve.rate(middle_s) for curve in curves], axis=0)
    by_then = np.concatenate([[0.0], np.cumsum(rate)])
    if not by_then[-1] > 0:
        raise InputError(f"modulate: the curve is 0 during all of the trace's {end_s:g} s")
    return CumulativeRate(at_s, by_then * (requests / by_then[-1]))
