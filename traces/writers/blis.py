"""BLIS TraceV2: a YAML header and a CSV of 27 columns in whole microseconds.

The columns are those of `sim/workload/tracev2.go` in inference-sim/inference-sim, with its optional
ones `vllm_priority`, `adapter` and `think_time_us` where the trace needs them. Its readers find
columns by position, so each optional one has its place.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fleetsim.traces.errors import InputError
from fleetsim.traces.reuse import shared_prompt_tokens
from fleetsim.traces.schema import IntArray, Trace
from fleetsim.traces.writers.target import Target, stated_columns, write_lines

_COLUMNS = [
    "request_id",
    "client_id",
    "tenant_id",
    "slo_class",
    "session_id",
    "round_index",
    "prefix_group",
    "prefix_length",
    "streaming",
    "input_tokens",
    "output_tokens",
    "text_tokens",
    "image_tokens",
    "audio_tokens",
    "video_tokens",
    "reason_ratio",
    "model",
    "deadline_us",
    "server_input_tokens",
    "arrival_time_us",
    "send_time_us",
    "first_chunk_time_us",
    "last_chunk_time_us",
    "num_chunks",
    "status",
    "error_message",
    "finish_reason",
]
_HEADER = {
    "trace_version": 2,
    "time_unit": "microseconds",
    "mode": "generated",
    "warm_up_requests": 0,
}
_NOTHING = (
    "prefix_length",
    "image_tokens",
    "audio_tokens",
    "video_tokens",
    "reason_ratio",
    "deadline_us",
    "server_input_tokens",
    "first_chunk_time_us",
    "last_chunk_time_us",
    "num_chunks",
)
"""Columns of which a trace says nothing: 0."""
_HELD = {"tenant", "slo_class", "session", "model", "adapter", "priority", "turn", "parent"}
_WHY = {
    "max_tokens": "BLIS allows each request its true output length",
}


def _lost(trace: Trace) -> list[str]:
    stated = stated_columns(trace)
    lost = [
        f"{name}: {_WHY.get(name, 'TraceV2 has no such column')}"
        for name in stated
        if name not in {*_HELD, "think_s", "block_ids"}
    ]
    shared = shared_prompt_tokens(trace)
    if shared:
        lost.append(
            f"block_ids: all {shared:,} shared prefix tokens are no longer shared, as TraceV2 "
            "knows one prefix per group and no tree of them"
        )
    off_s = np.abs(_microseconds(trace) / 1e6 - trace.arrival_s)
    moved = int((off_s > 0).sum())
    if moved:
        lost.append(
            f"arrival_s: {moved:,} arrivals are not whole microseconds; they move by up to "
            f"{off_s.max() * 1e6:.3g} us"
        )
    if trace.priority is not None and bool((trace.priority < 0).any()):
        lost.append("priority: some are below 0, which TraceV2 has not; none is written")
    rounds = _rounds(trace)
    if "turn" in stated and trace.turn is not None:
        renumbered = int(((trace.turn != rounds) & (trace.turn >= 0)).sum())
        if renumbered:
            lost.append(
                f"turn: {renumbered:,} rows are numbered anew, as BLIS counts a session's rounds "
                "from 0 without gaps"
            )
    if trace.parent is not None:
        linked = trace.parent >= 0
        if bool((trace.parent != _round_before(trace))[linked].any()):
            lost.append("parent: BLIS has a request wait for the round before it and no other")
    if trace.think_s is not None:
        stated_s = trace.think_s[~np.isnan(trace.think_s)]
        zeros = int((np.rint(stated_s * 1e6) == 0).sum())
        if zeros:
            lost.append(f"think_s: {zeros:,} are 0 us, which BLIS takes for not stated")
        off_s = np.abs(np.rint(stated_s * 1e6) / 1e6 - stated_s)
        if (off_s > 0).any():
            lost.append("think_s: some are not whole microseconds; they are rounded")
    return lost


def _microseconds(trace: Trace) -> IntArray:
    return np.rint(trace.arrival_s * 1e6).astype(np.int64)


def _by_session(trace: Trace) -> tuple[IntArray, IntArray]:
    """Rows of sessions, session by session in order of turn; and where each session begins."""
    assert trace.session is not None
    codes = trace.session.codes
    rows = np.flatnonzero(codes >= 0)
    turns = np.zeros(len(rows), np.int32) if trace.turn is None else trace.turn[rows]
    rows = rows[np.lexsort((rows, turns, codes[rows]))]
    return rows, np.flatnonzero(np.diff(codes[rows], prepend=-1))


def _rounds(trace: Trace) -> IntArray:
    """Position of each request in its session, from 0; 0 outside of sessions."""
    rounds = np.zeros(len(trace), np.int64)
    if trace.session is not None and (trace.session.codes >= 0).any():
        rows, begins = _by_session(trace)
        lengths = np.diff(np.append(begins, len(rows)))
        rounds[rows] = np.arange(len(rows)) - np.repeat(begins, lengths)
    return rounds


def _round_before(trace: Trace) -> IntArray:
    """Row of the session's request before each one, -1 for none."""
    before = np.full(len(trace), -1, np.int64)
    if trace.session is not None and (trace.session.codes >= 0).any():
        rows, begins = _by_session(trace)
        before[rows[1:]] = rows[:-1]
        before[rows[begins]] = -1
    return before


def _write(trace: Trace, path: Path) -> tuple[Path, ...]:
    header = path.with_suffix(".yaml")
    if header == path:
        raise InputError(f"{path}: is where the YAML header goes; name the CSV file")
    write_lines(path, _lines(trace))
    write_lines(header, [yaml.safe_dump(_HEADER, sort_keys=False)])
    return path, header


def _lines(trace: Trace) -> Iterator[str]:
    stated = stated_columns(trace)
    columns: dict[str, list[Any]] = {name: [""] * len(trace) for name in _COLUMNS}
    columns |= {name: [0] * len(trace) for name in _NOTHING}
    columns["request_id"] = list(range(len(trace)))
    names = {"tenant_id": "tenant", "slo_class": "slo_class", "session_id": "session"}
    for column, label in {**names, "model": "model", "adapter": "adapter"}.items():
        if label in stated:
            columns[column] = [getattr(trace, label)[row] or "" for row in range(len(trace))]
    columns["round_index"] = _rounds(trace).tolist()
    columns["streaming"] = ["true"] * len(trace)
    columns["input_tokens"] = columns["text_tokens"] = trace.prompt_tokens.tolist()
    columns["output_tokens"] = trace.output_tokens.tolist()
    columns["arrival_time_us"] = columns["send_time_us"] = _microseconds(trace).tolist()
    columns["status"] = ["ok"] * len(trace)

    order = [*_COLUMNS]
    if "priority" in stated and trace.priority is not None and bool((trace.priority >= 0).all()):
        order.insert(order.index("slo_class") + 1, "vllm_priority")
        columns["vllm_priority"] = trace.priority.tolist()
    if "adapter" in stated:
        order.append("adapter")
    if "think_s" in stated and trace.think_s is not None:
        order.append("think_time_us")
        think_us = np.nan_to_num(np.rint(trace.think_s * 1e6)).astype(np.int64)
        columns["think_time_us"] = think_us.tolist()

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(order)
    for values in zip(*(columns[name] for name in order), strict=True):
        writer.writerow(values)
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def _command(trace: Trace, path: Path) -> str:
    header, data = (shlex.quote(str(p)) for p in (path.with_suffix(".yaml"), path))
    return f"blis replay --trace-header {header} --trace-data {data} --model MODEL"


BLIS = Target("blis", "BLIS TraceV2: CSV, and its YAML header beside it", _lost, _write, _command)
