"""Another trace that might as well have been recorded: blocks of time, drawn with replacement."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace
from fleetsim.traces.transforms.layout import lay_out
from fleetsim.traces.transforms.record import draws, recorded
from fleetsim.traces.transforms.sessions import find_sessions


def block_bootstrap(trace: Trace, *, seed: int, block_s: float = 600.0) -> Trace:
    """Resample the trace by blocks of time, sessions whole, for confidence intervals.

    The trace is cut into equal blocks of about ``block_s``; as many are drawn with replacement and
    laid end to end. A session belongs to the block in which it begins and comes along whole, also
    where it runs on beyond the block. A block that is drawn again brings other sessions, as in
    :func:`superpose`; those of blocks that are not drawn are accounted as dropped by
    ``block_bootstrap``. Wall-clock time means nothing afterwards.

    Args:
        trace: stays as it is.
        seed: of the draw; each seed is one more trace.
        block_s: long against bursts and pauses between turns, short against the trace.

    Raises:
        InputError: a block that is not positive, or so long that there are not two.
    """
    if not (math.isfinite(block_s) and block_s > 0):
        raise InputError(f"block_bootstrap: block_s {block_s}: must be a positive number")
    end_s = float(trace.arrival_s[-1])
    blocks = round(end_s / block_s)
    if blocks < 2:
        raise InputError(
            f"block_bootstrap: block_s {block_s:g} gives {blocks} blocks in a trace of {end_s:g} "
            "s; must give at least 2"
        )
    length_s = end_s / blocks
    sessions = find_sessions(trace)
    begin_s = trace.arrival_s[sessions.first_row]
    block = np.minimum((begin_s / length_s).astype(np.int64), blocks - 1)[sessions.of]
    drawn = draws(trace, "block_bootstrap", seed).integers(0, blocks, size=blocks).tolist()
    members = [np.flatnonzero(block == number) for number in range(blocks)]
    picked = [members[number] for number in drawn]
    rows = np.concatenate(picked)
    if len(rows) == 0:
        raise InputError("block_bootstrap: only empty blocks were drawn; give longer ones")
    sizes = [len(part) for part in picked]
    copies = np.repeat([drawn[:slot].count(number) for slot, number in enumerate(drawn)], sizes)
    shift_s = np.repeat([(slot - number) * length_s for slot, number in enumerate(drawn)], sizes)
    laid = lay_out(
        trace, sessions, rows, copies, trace.arrival_s[rows] + shift_s, "block_bootstrap"
    )
    return recorded(
        replace(laid, metadata=replace(laid.metadata, t0_iso=None)),
        "block_bootstrap",
        block_s=length_s,
        blocks=blocks,
        sessions_told_by=sessions.told_by,
        seed=seed,
    )
