"""TraceLab: JSONL of the rounds of coding agents (Claude Code, Codex), a call of a model per line.

A session is a closed loop. A round is sent when its last input (a user's message, a tool's result)
is there, and ends with the model's last output; the next one of the session waits for it and comes
``think_s`` later, which is what tools and people took. A round that began before the one before
had ended waits 0 s; a warning counts these. Rounds without any time are dropped as ``no_time``,
rounds without output as ``zero_output``, and the next one waits for the round before them.

The publisher says how many input tokens the provider read from its cache (``prefix_tokens``), but
not which blocks, so prefixes are "none"; a warning gives the share. Subagents are sessions of their
own there, and here. ``output_tokens`` are taken as they are, reasoning not added.

Format: artifacts/utils/DB_SCHEMA.md and example_sessions of https://github.com/uw-syfi/TraceLab
(data CC-BY-4.0).
"""

from __future__ import annotations

from array import array
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from fleetsim.traces.schema import Categorical
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.record import Record
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

_REQUIRED = ("session_id", "input_tokens_total", "output_tokens", "timing_events")
_INPUTS = ("user_message", "tool_result")
_OUTPUTS = ("text", "reasoning", "tool_call")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US_PER_S = 1_000_000


def _read(content: Content, layout: Layout) -> Rows:
    stamps, ends = array("q"), array("q")
    prompts, outputs, lines = array("q"), array("q"), array("q")
    sessions: list[str] = []
    labels: dict[str, list[str | None]] = {"model": [], "user": []}
    cached = 0
    timeless: list[bool] = []
    for line, row in read_objects(content):
        record = Record(content, line, row)
        session = record.text("session_id")
        if session is None:
            raise record.error("lacks session_id")
        sessions.append(session)
        prompts.append(record.whole("input_tokens_total"))
        outputs.append(record.whole("output_tokens"))
        cached += record.whole("prefix_tokens") if record.has("prefix_tokens") else 0
        for name, column in labels.items():
            column.append(record.text(name))
        sent, end = _times_us(record)
        timeless.append(sent is None)
        stamps.append(sent or 0)
        ends.append(end or sent or 0)
        lines.append(line)

    parent = np.full(len(lines), -1, np.int64)
    turn = np.full(len(lines), -1, np.int64)
    think_s = np.full(len(lines), np.nan)
    last: dict[str, int] = {}
    turns: dict[str, int] = {}
    overlaps = 0
    for row in np.lexsort((np.arange(len(lines)), np.array(stamps, dtype=np.int64))).tolist():
        if timeless[row]:
            continue
        session = sessions[row]
        turn[row] = turns[session] = turns.get(session, -1) + 1
        if session in last:
            parent[row] = last[session]
            wait_us = stamps[row] - ends[last[session]]
            overlaps += wait_us < 0
            think_s[row] = max(wait_us, 0) / _US_PER_S
        if prompts[row] and outputs[row]:
            last[session] = row
    total = sum(prompts)
    warnings = []
    if cached:
        share = f"{cached / total:.1%}" if total else "some"
        warnings.append(
            f"the provider read {share} of input tokens from its cache, of which the file does not "
            "say which: no prefixes"
        )
    if overlaps:
        warnings.append(
            f"{overlaps} rounds began before the one before had ended; their think time is 0"
        )
    return Rows(
        stamps=np.array(stamps, dtype=np.int64),
        ticks_per_s=_US_PER_S,
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        line_numbers=np.array(lines, dtype=np.int64),
        t0_iso=lambda stamp_us: (_EPOCH + timedelta(microseconds=stamp_us)).isoformat(),
        session=Categorical.from_values(sessions),
        turn=turn,
        parent=parent,
        think_s=think_s,
        model=Categorical.from_values(labels["model"]),
        kind=Categorical(np.zeros(len(lines), np.int32), ("agent",)),
        tenant=Categorical.from_values(labels["user"]) if any(labels["user"]) else None,
        excluded={"no_time": np.array(timeless, dtype=bool)},
        warnings=tuple(warnings),
    )


def _times_us(record: Record) -> tuple[int | None, int | None]:
    """Find when a round was sent, and when it ended; None where it has no such event."""
    inputs, outputs = [], []
    for event in record.objects("timing_events"):
        kind, text = event.get("event_type"), event.get("timestamp")
        if kind in _INPUTS and text:
            inputs.append(_microseconds(record, text))
        elif kind in _OUTPUTS and text:
            outputs.append(_microseconds(record, text))
    if not inputs and not outputs:
        return None, None
    sent = max(inputs) if inputs else min(outputs)
    return sent, max([sent, *outputs])


def _microseconds(record: Record, text: Any) -> int:
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        return (time - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError, OverflowError):
        right = "a time such as 2026-06-01T05:40:20.151Z"
        raise record.error(f"timing_events: timestamp is {text!r}; must be {right}") from None


TRACELAB = TraceFormat(
    name="tracelab",
    about="TraceLab, rounds of coding agents",
    kinds=("JSONL",),
    required=_REQUIRED,
    optional=(),
    read=_read,
    checks_columns=True,  # some thirty more of no use here, other ones in each release
)
