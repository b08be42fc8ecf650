"""Arrivals of a given burstiness under the rate that the trace has."""

from __future__ import annotations

import math

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace
from fleetsim.traces.transforms.layout import at_times, own_time
from fleetsim.traces.transforms.rate import CumulativeRate, gaps_cv, variability
from fleetsim.traces.transforms.record import draws, recorded


def reburst(trace: Trace, cv: float, *, seed: int, bin_s: float = 60.0) -> Trace:
    """Draw the arrivals anew, with gaps of a given coefficient of variation.

    Time rescaling: the trace's rate is measured in bins; a renewal process with Gamma gaps of unit
    rate is drawn, as long as the trace, and mapped back through the integrated rate. Requests keep
    their order, so lengths, sessions and prefixes do; times within a session do not.

    ``cv`` is that of the gaps at a constant rate. Where the rate itself changes, the gaps of the
    result vary more: the record tells the CV reached at a constant rate, the CV and the IDC of
    the result at 1, 10 and 60 s. Dispersion at windows longer than a bin is that of the trace, to
    which the new gaps add theirs.

    Requests in a closed loop move with the request that starts the loop.

    Args:
        trace: stays as it is.
        cv: of the gaps; 1 is a Poisson process, more is burstier.
        seed: of the draw.
        bin_s: in which the rate is measured.

    Raises:
        InputError: a parameter that is not positive, or a trace whose requests arrive at once.
    """
    if not (math.isfinite(cv) and cv > 0):
        raise InputError(f"reburst: cv {cv} must be a positive number; 1 is Poisson")
    own = own_time(trace)
    rate = CumulativeRate.of(trace.arrival_s[own], bin_s)
    gaps = draws(trace, "reburst", seed).standard_gamma(cv**-2, len(own) - 1)
    by_then = np.concatenate([[0.0], np.cumsum(gaps)])
    if by_then[-1] <= 0:
        raise InputError(f"reburst: cv {cv:g} leaves no gap above 0 between {len(own)} requests")
    # as many requests in the same time: the curve's end is the last request's place
    by_then *= rate.expected[-1] / by_then[-1]
    arrival_s = trace.arrival_s.copy()
    arrival_s[own] = rate.when(by_then)
    found = variability(arrival_s[own])
    return recorded(
        at_times(trace, arrival_s),
        "reburst",
        cv=cv,
        bin_s=bin_s,
        seed=seed,
        reached_cv_at_constant_rate=round(gaps_cv(by_then), 4),
        **{f"reached_{name}": value for name, value in found.items()},
    )
