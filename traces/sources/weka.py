"""Agentic sessions of kv-cache-tester (WEKA): one JSON object per session, a file or a line each.

A session is a closed loop: a request is sent ``think_s`` after the answer to the one before. The
file states it as ``think_time``; where it does not, it is the gap between the two ``t`` less
``api_time`` of the first, or the whole gap where that is missing too (counted in a warning: it then
holds the server's time as well). ``t`` is seconds from the start of the session, mostly whole ones.

A session has no arrival time of its own: all of a file start at 0, which a warning says.

An item of type ``subagent`` holds requests of its own; its ``t`` is its end, ``duration_ms`` before
that it started, and the ``t`` of its requests count from there. Its first request waits for the
session's answer before it (or for a subagent that had ended by then), the others for each other,
and the next request of the session for the answer that came last of all. Requests inside have the
kind ``subagent``, others ``agent``.

A request without output (it failed) is dropped as ``zero_output``; the next one waits for the
answer before it, so nothing else is lost.

``hash_ids`` are local to the session; there is one per full block (the tail is left out) or one per
started block. They are made chain ids with the session as root, so sessions share nothing.

Format: docs/trace_replay_tester.md of https://github.com/callanjfox/kv-cache-tester (Apache-2.0).
The start and end of subagent items were told from the published files.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from fleetsim.traces.schema import Categorical
from fleetsim.traces.sources.chain_ids import ChainColumn, check_count
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_document, read_objects
from fleetsim.traces.sources.record import Record, exact_stamps
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

_REQUIRED = ("id", "block_size", "hash_id_scope", "requests")
_OPTIONAL = ("models", "tool_tokens", "system_tokens", "totals", "source_file")


class _Rows:
    """What has been read so far; one entry per request."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self.think_s: list[float] = []
        self.prompts, self.outputs, self.lines = array("q"), array("q"), array("q")
        self.parents, self.turns, self.roots = array("q"), array("q"), array("q")
        self.sessions: list[str] = []
        self.models: list[str | None] = []
        self.kinds: list[str] = []
        self.blocks = ChainColumn()
        self.ends: list[float] = []  # seconds into the session at which the answer was there
        self.subagents = self.with_server_time = self.overlaps = 0


def _read(content: Content, layout: Layout) -> Rows:
    rows = _Rows()
    line_of: dict[str, int] = {}
    block_tokens = 0
    documents = [(1, read_document(content))] if layout.kind == "JSON" else read_objects(content)
    for line, session in documents:
        record = Record(content, line, session)
        record.refuse_unknown((*_REQUIRED, *_OPTIONAL), "weka")
        name = record.text("id")
        if name is None:
            raise record.error("lacks id, the name of the session")
        if name in line_of:
            raise record.error(f"session {name!r} is in row {line_of[name]} too; name each once")
        if record.row.get("hash_id_scope") != "local":
            scope = record.row.get("hash_id_scope")
            raise record.error(f"hash_id_scope is {scope!r}; must be 'local', ids of the session")
        size = record.whole("block_size", low=1)
        block_tokens = block_tokens or size
        if size != block_tokens:
            raise record.error(f"block_size is {size}; must be {block_tokens} as in other sessions")
        line_of[name] = line
        _add_session(rows, record, name, len(line_of), block_tokens)
    return _finish(rows, len(line_of), block_tokens)


def _add_session(rows: _Rows, session: Record, name: str, root: int, block_tokens: int) -> None:
    begin = len(rows.lines)
    last, direct = -1, True  # the answer waited for; whether it is of the request just before
    group: list[int] = []  # last answers of the subagents since then
    for number, item in enumerate(session.objects("requests")):
        record = Record(session.content, session.line, item, f"requests[{number}]: ")
        if item.get("type") != "subagent":
            if group:
                last, direct = _latest(rows, [last, *group]), False
                group = []
            last = _add(rows, record, name, root, block_tokens, 0.0, last, direct, "agent", begin)
            direct = last == len(rows.lines) - 1
            continue
        rows.subagents += 1
        end_s, duration_s = record.number("t", "seconds"), record.number("duration_ms", "ms") / 1000
        start_s = max(end_s - duration_s, 0.0)
        # subagents run beside each other, unless one starts after another one's end
        done = [row for row in group if rows.ends[row] <= start_s]
        inner, close = _latest(rows, [last, *done]), False
        for place, nested in enumerate(record.objects("requests")):
            where = f"requests[{number}].requests[{place}]: "
            record = Record(session.content, session.line, nested, where)
            inner = _add(
                rows, record, name, root, block_tokens, start_s, inner, close, "subagent", begin
            )
            close = inner == len(rows.lines) - 1
        if inner >= 0:
            group.append(inner)


def _latest(rows: _Rows, answers: list[int]) -> int:
    """Pick the answer that came last; -1, none, comes before any."""
    return max(answers, key=lambda row: rows.ends[row] if row >= 0 else -1.0)


def _add(
    rows: _Rows,
    record: Record,
    session: str,
    root: int,
    block_tokens: int,
    start_s: float,
    parent: int,
    direct: bool,
    kind: str,
    begin: int,
) -> int:
    """Append a request; give the row that the next one waits for."""
    stamp_s = start_s + record.number("t", "seconds")
    prompt, output = record.whole("in"), record.whole("out")
    served = prompt > 0 and output > 0
    think_s = np.nan
    if parent >= 0:
        if direct and record.has("think_time"):
            think_s = record.number("think_time", "seconds")
        else:
            think_s = stamp_s - rows.ends[parent]
            rows.with_server_time += served and rows.ends[parent] == rows.stamps[parent]
            rows.overlaps += served and think_s < 0
            think_s = max(think_s, 0.0)
        stamp_s = max(stamp_s, rows.stamps[parent])
    api_s = record.number("api_time", "seconds") if record.has("api_time") else 0.0
    rows.blocks.add(record, "hash_ids")
    check_count(record, "hash_ids", "in", prompt, block_tokens)
    rows.stamps.append(stamp_s)
    rows.ends.append(stamp_s + api_s)
    rows.think_s.append(think_s)
    rows.prompts.append(prompt)
    rows.outputs.append(output)
    rows.lines.append(record.line)
    rows.parents.append(parent)
    rows.turns.append(len(rows.turns) - begin)
    rows.roots.append(root)
    rows.sessions.append(session)
    rows.models.append(record.text("model"))
    rows.kinds.append(kind)
    return len(rows.lines) - 1 if served else parent


def _finish(rows: _Rows, sessions: int, block_tokens: int) -> Rows:
    warnings = []
    if sessions > 1:
        warnings.append(
            f"{sessions} sessions have no arrival times, and all start at 0; give them some before "
            "you read anything into their load"
        )
    if rows.subagents:
        nested = rows.kinds.count("subagent")
        warnings.append(
            f"{rows.subagents} subagents with {nested} requests of their own; the session waits "
            "for the one that ended last where it was recorded"
        )
    if rows.with_server_time:
        warnings.append(
            f"{rows.with_server_time} think times hold the server's time too: the file states "
            "neither think_time nor api_time"
        )
    if rows.overlaps:
        warnings.append(
            f"{rows.overlaps} requests came before the answer that they wait for; their think "
            "time is 0"
        )
    return Rows(
        stamps=exact_stamps(rows.stamps),
        ticks_per_s=1,
        prompt_tokens=np.array(rows.prompts, dtype=np.int64),
        output_tokens=np.array(rows.outputs, dtype=np.int64),
        line_numbers=np.array(rows.lines, dtype=np.int64),
        chains=rows.blocks.chains(block_tokens, np.array(rows.roots, dtype=np.int64)),
        session=Categorical.from_values(rows.sessions),
        turn=np.array(rows.turns, dtype=np.int64),
        parent=np.array(rows.parents, dtype=np.int64),
        think_s=np.array(rows.think_s, dtype=np.float64),
        model=Categorical.from_values(rows.models),
        kind=Categorical.from_values(rows.kinds),
        warnings=tuple(warnings),
    )


def _recognise(layout: Layout) -> bool:
    items: Any = layout.rows[0].get("requests") if layout.rows else None
    return isinstance(items, list)


WEKA = TraceFormat(
    name="weka",
    about="agentic sessions of kv-cache-tester (WEKA)",
    kinds=("JSONL", "JSON"),
    required=_REQUIRED,
    optional=_OPTIONAL,
    read=_read,
    recognise=_recognise,
)
