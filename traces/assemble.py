"""From a file's rows to a trace: drop by name, sort, rebase, account, warn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleetsim.traces.prefix_tree import find_broken_chain
from fleetsim.traces.schema import Categorical, FloatArray, IntArray, Trace, TraceMetadata
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.rows import Chains, Rows
from fleetsim.traces.sources.table import row_error

_SHARED_STAMP_WARNING = 0.2
_GRID_ROWS = 20  # fewer rows say nothing about a grid


def assemble(rows: Rows, content: Content, format_name: str) -> Trace:
    """Make a trace of checked rows.

    Rows without prompt or output tokens are dropped, by name: ``zero_prompt`` (nothing was asked)
    and ``zero_output`` (the request failed where it was recorded). A turn that waits for one of
    these would never come, so it is dropped too: ``parent_dropped``. The rest is sorted by arrival,
    stably, and rebased so that the first request arrives at 0.

    Raises:
        InputError: no row left, block ids that are no prefix chains, a parent that comes later.
    """
    if len(rows) == 0:
        raise content.error("has no rows; a trace needs at least one")
    no_prompt = rows.prompt_tokens == 0
    no_output = (rows.output_tokens == 0) & ~no_prompt
    _refuse_later_parents(rows, content)
    left_out = no_prompt | no_output
    forlorn = _forlorn(rows, left_out)
    reasons = {"zero_prompt": no_prompt, "zero_output": no_output, "parent_dropped": forlorn}
    dropped = {name: int(mask.sum()) for name, mask in reasons.items() if mask.any()}
    kept = np.flatnonzero(~(left_out | forlorn))
    if len(kept) == 0:
        raise content.error(f"no row left of {len(rows)}: dropped {dropped}; give served requests")
    stamps = rows.stamps[kept]
    order = kept[np.argsort(stamps, kind="stable")]

    warnings = [*rows.warnings]
    unsorted = int((np.diff(stamps) < 0).sum())
    if unsorted:
        warnings.append(f"{unsorted} rows arrived before the row above them; sorted by arrival")
    if dropped:
        listed = ", ".join(f"{name} {count}" for name, count in dropped.items())
        warnings.append(f"{sum(dropped.values())} of {len(rows)} rows dropped: {listed}")
    stamps = rows.stamps[order]
    resolution_s = _tick_s(stamps, rows.ticks_per_s)
    grid = _grid_s(stamps, rows.ticks_per_s)
    if grid is not None:
        resolution_s, share = grid
        warnings.append(
            f"{share:.0%} of requests share their arrival time with another one (grid of about "
            f"{resolution_s:g} s): bursts shorter than that are an artefact"
        )

    offsets, ids = _pick_chains(rows.chains, order)
    if offsets is not None and ids is not None:
        broken = find_broken_chain(offsets, ids)
        if broken is not None:
            request, block, before = broken
            raise row_error(
                content.path,
                int(rows.line_numbers[order[request]]),
                f"block id {block} follows another block than in row "
                f"{rows.line_numbers[order[before]]}; an id must stand for one whole prefix",
            )

    parent, think_s = _pick_parents(rows, order)

    def label(column: Categorical | None) -> Categorical | None:
        return None if column is None else column.take(order)

    return Trace(
        arrival_s=(stamps - stamps[0]) / float(rows.ticks_per_s),
        prompt_tokens=rows.prompt_tokens[order].astype(np.int32),
        output_tokens=rows.output_tokens[order].astype(np.int32),
        source_row=order if rows.source_row is None else rows.source_row[order],
        metadata=TraceMetadata(
            source_name=format_name,
            source_path=content.path.name,
            sha256=content.sha256(),
            t0_iso=None if rows.t0_iso is None else rows.t0_iso(int(stamps[0])),
            time_resolution_s=resolution_s,
            block_tokens=None if rows.chains is None else rows.chains.block_tokens,
            prefix_scope="none" if rows.chains is None else "global",
            rows_read=len(rows),
            rows_kept=len(order),
            rows_dropped=dropped,
            warnings=tuple(warnings),
        ),
        max_tokens=None if rows.max_tokens is None else rows.max_tokens[order].astype(np.int32),
        block_offsets=offsets,
        block_ids=ids,
        session=label(rows.session),
        turn=None if rows.turn is None else rows.turn[order].astype(np.int32),
        parent=parent,
        think_s=think_s,
        tenant=label(rows.tenant),
        model=label(rows.model),
        priority=None if rows.priority is None else rows.priority[order].astype(np.int16),
        slo_class=label(rows.slo_class),
        adapter=label(rows.adapter),
        kind=label(rows.kind),
    )


def _refuse_later_parents(rows: Rows, content: Content) -> None:
    if rows.parent is None:
        return
    linked = np.flatnonzero(rows.parent >= 0)
    parent = rows.parent[linked]
    before, after = rows.stamps[parent], rows.stamps[linked]
    wrong = (before > after) | ((before == after) & (parent >= linked))
    if wrong.any():
        row = int(linked[np.argmax(wrong)])
        raise row_error(
            content.path,
            int(rows.line_numbers[row]),
            f"waits for the answer to row {rows.line_numbers[rows.parent[row]]}, which comes "
            "later; a parent must arrive before, or at the same time in a row above",
        )


def _forlorn(rows: Rows, left_out: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Find the turns that wait for a row that is left out, or for such a turn."""
    forlorn = np.zeros(len(rows), bool)
    if rows.parent is None or rows.think_s is None:
        return forlorn
    waits = np.flatnonzero(~np.isnan(rows.think_s) & ~left_out)
    gone = left_out.copy()
    while True:
        found = waits[gone[rows.parent[waits]]]
        if len(found) == 0:
            return forlorn
        forlorn[found] = gone[found] = True
        waits = waits[~gone[waits]]


def _pick_parents(rows: Rows, order: IntArray) -> tuple[IntArray | None, FloatArray | None]:
    """Give the parents of the kept rows by their new numbers; None where nobody has one left."""
    if rows.parent is None:
        return None, None
    place = np.full(len(rows) + 1, -1, np.int64)  # the last one is for parent -1
    place[order] = np.arange(len(order))
    parent = place[rows.parent[order]]
    think_s = None if rows.think_s is None else rows.think_s[order]
    if think_s is not None and np.isnan(think_s).all():
        think_s = None
    return (parent if (parent >= 0).any() else None), think_s


def _tick_s(stamps: IntArray | FloatArray, ticks_per_s: int) -> float | None:
    """Find the finest step of integer stamps."""
    if stamps.dtype.kind != "i":
        return None
    step = int(np.gcd.reduce(stamps - stamps[0]))
    return step / ticks_per_s if step else None


def _grid_s(stamps: IntArray | FloatArray, ticks_per_s: int) -> tuple[float, float] | None:
    """Find the grid on which arrivals were stamped in batches: (modal gap, share of rows)."""
    gaps = np.diff(stamps)
    same = gaps == 0
    share = float((np.r_[same, False] | np.r_[False, same]).mean())
    if len(stamps) < _GRID_ROWS or share <= _SHARED_STAMP_WARNING or same.all():
        return None
    steps, counts = np.unique(np.round(gaps[~same] / ticks_per_s, 6), return_counts=True)
    return float(steps[np.argmax(counts)]), share


def _pick_chains(
    chains: Chains | None, order: IntArray
) -> tuple[IntArray | None, np.ndarray[tuple[int], np.dtype[np.uint64]] | None]:
    """Lay out the chains of the kept rows one after another, in their new order."""
    if chains is None:
        return None, None
    begins = np.cumsum(chains.lengths) - chains.lengths
    lengths = chains.lengths[order]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    pick = np.repeat(begins[order] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return offsets, chains.ids[pick]
