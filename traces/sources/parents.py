"""Whose answer a row of the plain format waits for.

A file states it by `session`, `turn` and `parent_turn` (left out: the turn before), for rows with
`think_s`; or, in Parquet as :meth:`Trace.to_parquet` writes it, by `parent`, a row counted from 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleetsim.traces.schema import Categorical, FloatArray, IntArray
from fleetsim.traces.sources.table import Table

Links = tuple[IntArray | None, FloatArray | None]


def find_parents(table: Table, session: Categorical | None, turn: IntArray | None) -> Links:
    """Find the parent of each row, and its think time.

    Returns:
        (index of the parent row, -1 for none; seconds from its end, NaN for none); None where the
        file says nothing of it.

    Raises:
        InputError: a think time without a parent, a parent that is not there, a turn that occurs
            twice, a turn that waits for itself.
    """
    think_s = None
    if "think_s" in table.columns:
        think_s = table.seconds("think_s", optional=True)
    waits = np.zeros(len(table), bool) if think_s is None else ~np.isnan(think_s)
    by_row = "parent" in table.columns
    parent = _by_row(table) if by_row else _by_turn(table, waits, session, turn)
    orphans = np.flatnonzero(waits if parent is None else waits & (parent < 0))
    if len(orphans):
        raise table.error(int(orphans[0]), "think_s needs a parent; leave it empty, or give parent")
    if parent is None or not (parent >= 0).any():
        return None, None
    return parent, think_s if waits.any() else None


def _by_row(table: Table) -> IntArray:
    if table.is_text or "parent_turn" in table.columns:
        raise table.error(0, "parent (a row) is for Parquet alone; give session, turn, parent_turn")
    return table.integers("parent", low=0, high=max(len(table) - 1, 0), null=-1)


def _by_turn(
    table: Table, waits: npt.NDArray[np.bool_], session: Categorical | None, turn: IntArray | None
) -> IntArray | None:
    rows = len(table)
    stated = np.full(rows, -1, np.int64)
    if "parent_turn" in table.columns:
        stated = table.integers("parent_turn", low=0, null=-1)
    linked = np.flatnonzero(waits | (stated >= 0))
    if len(linked) == 0:
        return None
    codes = np.full(rows, -1, np.int64) if session is None else session.codes.astype(np.int64)
    turns = np.full(rows, -1, np.int64) if turn is None else turn
    placed = (codes >= 0) & (turns >= 0)
    adrift = linked[~placed[linked]]
    if len(adrift):
        column = "think_s" if waits[adrift[0]] else "parent_turn"
        raise table.error(int(adrift[0]), f"{column} needs session and turn in its row")

    # (session, turn) as one sortable number; turns and parent turns are below 2**31
    keys = np.flatnonzero(placed)
    number = codes[keys] * 2**31 + turns[keys]
    order = np.argsort(number, kind="stable")
    keys, number = keys[order], number[order]
    repeats = np.flatnonzero(number[1:] == number[:-1]) + 1
    if len(repeats):
        place = repeats[np.argmin(keys[repeats])]
        row = int(keys[place])
        first = int(keys[np.searchsorted(number, number[place])])
        raise table.error(
            row,
            f"{_name(session, turns, row)} is in row {table.line_numbers[first]} too; a turn must "
            "occur once",
        )

    wanted = np.where(stated >= 0, stated, turns - 1)[linked]
    if (wanted < 0).any():
        row = int(linked[np.argmax(wanted < 0)])
        raise table.error(row, "think_s at turn 0, which waits for no answer; leave it empty")
    sought = codes[linked] * 2**31 + wanted
    place = np.minimum(np.searchsorted(number, sought), len(number) - 1)
    missing = number[place] != sought
    if missing.any():
        first = int(np.argmax(missing))
        row = int(linked[first])
        raise table.error(
            row,
            f"{_name(session, turns, row)} waits for turn {wanted[first]}, which is not there; "
            "give that turn too, or leave think_s and parent_turn empty",
        )
    parent = np.full(rows, -1, np.int64)
    parent[linked] = keys[place]
    return parent


def _name(session: Categorical | None, turns: IntArray, row: int) -> str:
    return f"turn {turns[row]} of session {session[row] if session else None!r}"
