"""More sessions at the original tempo: the way to raise the rate without changing its nature."""

from __future__ import annotations

import math

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace
from fleetsim.traces.transforms.layout import lay_out
from fleetsim.traces.transforms.record import draws, recorded
from fleetsim.traces.transforms.sessions import find_sessions


def superpose(trace: Trace, factor: float, *, seed: int) -> Trace:
    """Lay copies of the trace over each other, each turned round by a random time.

    Copy 0 is the trace as it is. Every other copy is shifted in a circle: sessions that would
    begin after the trace's end begin as much after its start. A session moves whole, so its later
    turns may come after the end, and the first minutes hold fewer late turns than the recording
    does; how many requests lie beyond the end is recorded.

    Sessions of different copies are different sessions: they share the blocks that several
    sessions of the trace share (system prompts), and no others. So each copy keeps the reuse that
    the trace has.

    With one seed, a larger factor adds sessions to those of a smaller one and moves none.

    Args:
        trace: stays as it is.
        factor: how many copies, at least 1; 2.5 is two whole ones and half of the sessions of a
            third, drawn.
        seed: of the shifts and that draw.

    Raises:
        InputError: a factor below 1.
    """
    if not (math.isfinite(factor) and factor >= 1):
        raise InputError(f"superpose: factor {factor} must be at least 1; thin lowers the rate")
    sessions = find_sessions(trace)
    start_s = trace.arrival_s[sessions.first_row]
    period_s = _period_s(trace)
    rows, copies, arrivals = [], [], []
    for copy in range(math.ceil(factor)):
        shift_s = draws(trace, "superpose", seed, f"shift {copy}").random() * period_s
        turned = np.where(start_s + shift_s >= period_s, shift_s - period_s, shift_s)
        chosen = np.arange(len(trace))
        if copy == 0:
            turned = np.zeros(len(sessions))
        elif copy + 1 > factor:
            kept = draws(trace, "superpose", seed, f"part {copy}").random(len(sessions))
            chosen = chosen[(kept < factor - copy)[sessions.of]]
        rows.append(chosen)
        copies.append(np.full(len(chosen), copy))
        arrivals.append(np.maximum(trace.arrival_s + turned[sessions.of], 0.0)[chosen])
    arrival_s = np.concatenate(arrivals)
    laid = lay_out(
        trace, sessions, np.concatenate(rows), np.concatenate(copies), arrival_s, "superpose"
    )
    return recorded(
        laid,
        "superpose",
        factor=factor,
        requests_past_end=int((arrival_s > trace.arrival_s[-1]).sum()),
        sessions_told_by=sessions.told_by,
        seed=seed,
    )


def repeat(trace: Trace, times: int) -> Trace:
    """Lay the trace end to end with itself, one mean gap apart.

    The sessions of every repetition are other ones, as in :func:`superpose`.

    Args:
        trace: stays as it is.
        times: how often it runs, at least 1.

    Raises:
        InputError: fewer times than 1.
    """
    if times < 1:
        raise InputError(f"repeat: times {times} must be at least 1")
    sessions = find_sessions(trace)
    copies = np.repeat(np.arange(times), len(trace))
    arrival_s = np.tile(trace.arrival_s, times) + copies * _period_s(trace)
    rows = np.tile(np.arange(len(trace)), times)
    laid = lay_out(trace, sessions, rows, copies, arrival_s, "repeat")
    return recorded(laid, "repeat", times=times, sessions_told_by=sessions.told_by)


def _period_s(trace: Trace) -> float:
    """From the first arrival to one mean gap behind the last."""
    return float(trace.arrival_s[-1]) * len(trace) / max(len(trace) - 1, 1)
