"""Fewer requests."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace
from fleetsim.traces.transforms.record import draws, recorded
from fleetsim.traces.transforms.sessions import find_sessions

By = Literal["session", "request"]


def thin(trace: Trace, share: float, *, seed: int, by: By = "session") -> Trace:
    """Keep each session with probability ``share``, whole or not at all.

    By request, each request is kept or not by itself: that takes turns out of conversations and so
    breaks the reuse of prefixes. With one seed, what a smaller share keeps is part of what a
    larger one keeps. The rest is accounted as dropped by ``thin``.

    Args:
        trace: stays as it is.
        share: above 0, at most 1.
        seed: of the draw.
        by: what is kept or dropped as one. Where no session is known, a session is one request.

    Raises:
        InputError: a share out of range, or one that leaves nothing.
    """
    if not 0 < share <= 1:
        raise InputError(f"thin: share {share} must be above 0 and at most 1")
    sessions = find_sessions(trace)
    of = sessions.of if by == "session" else np.arange(len(trace))
    units = len(sessions) if by == "session" else len(trace)
    random = draws(trace, "thin", seed)
    rows = np.flatnonzero((random.random(units) < share)[of])
    if len(rows) == 0:
        raise InputError(f"thin: share {share:g} of {units} {by}s leaves none; give a larger share")
    return recorded(
        trace.take(rows, "thin"),
        "thin",
        share=share,
        by=by,
        sessions_told_by=sessions.told_by if by == "session" else None,
        seed=seed,
    )
