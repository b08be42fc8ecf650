"""Sessions that begin when a process says so, each as it was recorded."""

from __future__ import annotations

import math
from dataclasses import replace

from fleetsim.traces.arrivals import gamma_arrivals
from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace
from fleetsim.traces.transforms.layout import at_times
from fleetsim.traces.transforms.record import draws, recorded
from fleetsim.traces.transforms.sessions import find_sessions


def attach_sessions(trace: Trace, sessions_per_s: float, *, seed: int, cv: float = 1.0) -> Trace:
    """Let sessions begin as a renewal process, in the order in which they began.

    For recordings that know only the time since a session's start. Times within a session stay as
    they are; what was known of the times between sessions is gone, wall-clock time included.

    Args:
        trace: stays as it is.
        sessions_per_s: mean rate at which sessions begin.
        seed: of the draw.
        cv: coefficient of variation of the (Gamma) gaps between them; 1 is a Poisson process.

    Raises:
        InputError: a rate or CV that is not a positive number.
    """
    if not (math.isfinite(sessions_per_s) and sessions_per_s > 0):
        raise InputError(f"attach_sessions: sessions_per_s {sessions_per_s}: must be above 0")
    if not (math.isfinite(cv) and cv > 0):
        raise InputError(f"attach_sessions: cv {cv} must be a positive number; 1 is Poisson")
    sessions = find_sessions(trace)
    random = draws(trace, "attach_sessions", seed)
    begin_s = gamma_arrivals(len(sessions), sessions_per_s, cv**-2, random)
    since_s = trace.arrival_s - trace.arrival_s[sessions.first_row][sessions.of]
    moved = at_times(trace, begin_s[sessions.of] + since_s)
    return recorded(
        replace(moved, metadata=replace(moved.metadata, t0_iso=None)),
        "attach_sessions",
        sessions_per_s=sessions_per_s,
        cv=cv,
        sessions_told_by=sessions.told_by,
        seed=seed,
    )
