"""Requests at other times, and copies of them: one trace out of rows laid out anew."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fleetsim.traces.numbering import by_first_appearance
from fleetsim.traces.runs import lay_runs
from fleetsim.traces.schema import Categorical, FloatArray, IntArray, Trace, columns_at, later
from fleetsim.traces.transforms.sessions import Sessions, session_blocks


def own_time(trace: Trace) -> IntArray:
    """List the requests that come at their own time, not after another one's answer."""
    if trace.think_s is None:
        return np.arange(len(trace))
    return np.flatnonzero(np.isnan(trace.think_s))


def at_times(trace: Trace, arrival_s: FloatArray) -> Trace:
    """Give every request another arrival, sort stably, and rebase the first one to 0.

    A request in a closed loop has no time of its own: it moves as far as the one at the other end
    of its chain of parents, which has.

    Args:
        trace: stays as it is.
        arrival_s: on the trace's own clock, one per request in the trace's order; it must keep
            the order of a session's requests.
    """
    leader = _leaders(trace)
    if leader is not None:
        moved = arrival_s[leader] + (trace.arrival_s - trace.arrival_s[leader])
        arrival_s = np.where(leader == np.arange(len(trace)), arrival_s, moved)
    order = np.argsort(arrival_s, kind="stable")
    return _at(trace, order, np.zeros(len(trace), np.int64), arrival_s[order], "")


def lay_out(
    trace: Trace,
    sessions: Sessions,
    rows: IntArray,
    copy: IntArray,
    arrival_s: FloatArray,
    reason: str,
) -> Trace:
    """Make a trace of copies of requests.

    Copy 0 of a session keeps its name; copy k is called ``name~k``, counted on from the highest
    number that a name has already. A block of several sessions (a system prompt) is the same in
    all copies; one that only one session has is another one in each copy. Block ids are only
    names: where there are copies, they are numbered anew, by first appearance.

    Args:
        trace: stays as it is.
        sessions: of the trace.
        rows: which request, in any order, but a parent before its children.
        copy: which copy of it, from 0; the same for all requests of a session that belong
            together.
        arrival_s: when it arrives, on any clock.
        reason: under which rows that are left out are accounted.
    """
    order = np.argsort(arrival_s, kind="stable")
    rows, copy = rows[order], copy[order]
    laid = _at(trace, rows, copy, arrival_s[order], reason)
    if not copy.any():
        return laid
    return replace(
        laid,
        session=_named_by_copy(trace.session, rows, copy),
        block_ids=_blocks_by_copy(trace, sessions, rows, copy),
    )


def _at(trace: Trace, rows: IntArray, copy: IntArray, arrival_s: FloatArray, reason: str) -> Trace:
    """Lay out rows in the order given; a parent is the one in the same copy."""
    columns = columns_at(trace, rows)
    first_s = float(arrival_s[0])
    columns["arrival_s"] = arrival_s - first_s
    if trace.parent is not None:
        keys = copy * len(trace) + rows
        order = np.argsort(keys)
        wanted = np.where(columns["parent"] < 0, -1, copy * len(trace) + columns["parent"])
        near = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(rows) - 1)]
        columns["parent"] = np.where(keys[near] == wanted, near, -1)
        if trace.think_s is not None:
            orphaned = columns["parent"] < 0
            columns["think_s"] = np.where(orphaned, np.nan, columns["think_s"])
    taken = len(np.unique(rows))
    dropped = dict(trace.metadata.rows_dropped)
    if taken < len(trace):
        dropped[reason] = dropped.get(reason, 0) + len(trace) - taken
    columns["metadata"] = replace(
        trace.metadata,
        rows_kept=len(rows),
        rows_dropped=dropped,
        rows_made=trace.metadata.rows_made + len(rows) - taken,
        t0_iso=later(trace.metadata.t0_iso, first_s),
    )
    return replace(trace, **columns)


def _leaders(trace: Trace) -> IntArray | None:
    """Find for each request the one whose arrival starts its closed loop; None without loops."""
    if trace.parent is None or trace.think_s is None:
        return None
    leader = np.where(np.isnan(trace.think_s), np.arange(len(trace)), trace.parent)
    while not np.array_equal(leader, leader[leader]):
        leader = leader[leader]
    return leader


def _named_by_copy(
    session: Categorical | None, rows: IntArray, copy: IntArray
) -> Categorical | None:
    if session is None:
        return None
    suffixes = (re.search("~([0-9]+)$", name) for name in session.names)
    highest = max((int(found[1]) for found in suffixes if found), default=0)
    codes = session.codes[rows].astype(np.int64)
    known = codes >= 0
    number, first = by_first_appearance(copy[known] * len(session.names) + codes[known])
    names = [
        session.names[code] + (f"~{highest + which}" if which else "")
        for code, which in zip(codes[known][first], copy[known][first], strict=True)
    ]
    renamed = np.full(len(rows), -1, np.int32)
    renamed[known] = number
    return Categorical(renamed, tuple(names))


def _blocks_by_copy(
    trace: Trace, sessions: Sessions, rows: IntArray, copy: IntArray
) -> npt.NDArray[np.uint64] | None:
    owners = session_blocks(trace, sessions)
    if owners is None or trace.block_offsets is None or trace.block_ids is None:
        return None
    distinct, block = np.unique(trace.block_ids, return_inverse=True)
    # the block's number, and whether it is a session's own, laid out as the rows are
    marked = 2 * block.reshape(-1) + (owners >= 0)
    lengths = np.diff(trace.block_offsets)[rows]
    marked = marked[lay_runs(trace.block_offsets[:-1][rows], lengths)[1]]
    own = marked % 2 == 1
    keys = marked // 2 + np.where(own, np.repeat(copy, lengths) * len(distinct), 0)
    return by_first_appearance(keys)[0].astype(np.uint64)
