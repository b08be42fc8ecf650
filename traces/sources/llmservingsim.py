"""Workloads of LLMServingSim: JSONL of single requests and of sessions, mixed as one likes.

A line is a request (``input_toks, output_toks, arrival_time_ns``) or a session (``session_id,
arrival_time_ns, sub_requests``). The requests of a session are a closed loop: each comes
``tool_duration_ns`` of the one before after that one's last token; its ``arrival_s`` is when it
would come if serving took no time.

Where requests carry token ids, full blocks of 16 tokens get chain ids that are hashes of all tokens
up to the block's end, so equal ids mean equal tokens. Rows without them have none.

Format: docs/docs/workloads/jsonl-format.md of https://github.com/casys-kaist/LLMServingSim (MIT).
"""

from __future__ import annotations

from array import array

import numpy as np

from fleetsim.traces.schema import Categorical
from fleetsim.traces.sources.chain_ids import Ids, chain_ids
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.record import Record
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Chains, Rows

BLOCK_TOKENS = 16
_NS_PER_S = 1_000_000_000
_NS_MAX = 2**62
_CALL = ("input_toks", "output_toks", "input_tok_ids", "output_tok_ids")
_FLAT = (*_CALL, "arrival_time_ns")
_SESSION = ("session_id", "arrival_time_ns", "sub_requests")


class _Rows:
    """What has been read so far; one entry per request."""

    def __init__(self) -> None:
        self.stamps, self.prompts, self.outputs = array("q"), array("q"), array("q")
        self.lines, self.parents, self.turns = array("q"), array("q"), array("q")
        self.think_s: list[float] = []
        self.sessions: list[str | None] = []
        self.counts = array("q")
        self.ids: list[Ids] = []

    def add(self, record: Record, stamp_ns: int) -> None:
        """Append a request that waits for none."""
        prompt = record.whole("input_toks")
        self.ids.append(_blocks(record, prompt))
        self.counts.append(len(self.ids[-1]))
        if record.has("output_tok_ids"):
            _check_tokens(record, "output_tok_ids", "output_toks")
        self.stamps.append(stamp_ns)
        self.prompts.append(prompt)
        self.outputs.append(record.whole("output_toks"))
        self.lines.append(record.line)
        self.parents.append(-1)
        self.turns.append(-1)
        self.think_s.append(np.nan)
        self.sessions.append(None)


def _read(content: Content, layout: Layout) -> Rows:
    rows = _Rows()
    line_of: dict[str, int] = {}
    for line, row in read_objects(content):
        record = Record(content, line, row)
        if "sub_requests" in row:
            record.refuse_unknown(_SESSION, "a session of llmservingsim")
            _add_session(rows, record, line_of)
        else:
            record.refuse_unknown(_FLAT, "a request of llmservingsim")
            rows.add(record, record.whole("arrival_time_ns", high=_NS_MAX))
    counts = np.array(rows.counts, dtype=np.int64)
    chains = None
    if counts.any():
        chains = Chains(counts, np.concatenate(rows.ids), BLOCK_TOKENS)
    waits = bool(line_of)
    return Rows(
        stamps=np.array(rows.stamps, dtype=np.int64),
        ticks_per_s=_NS_PER_S,
        prompt_tokens=np.array(rows.prompts, dtype=np.int64),
        output_tokens=np.array(rows.outputs, dtype=np.int64),
        line_numbers=np.array(rows.lines, dtype=np.int64),
        chains=chains,
        session=Categorical.from_values(rows.sessions) if waits else None,
        turn=np.array(rows.turns, dtype=np.int64) if waits else None,
        parent=np.array(rows.parents, dtype=np.int64) if waits else None,
        think_s=np.array(rows.think_s, dtype=np.float64) if waits else None,
    )


def _add_session(rows: _Rows, session: Record, line_of: dict[str, int]) -> None:
    name = session.text("session_id")
    if name is None:
        raise session.error("lacks session_id, the name of the session")
    if name in line_of:
        raise session.error(f"session_id {name!r} is in row {line_of[name]} too; name each once")
    line_of[name] = session.line
    stamp_ns = session.whole("arrival_time_ns", high=_NS_MAX)
    calls = session.objects("sub_requests")
    if not calls:
        raise session.error("sub_requests is empty; a session needs at least one request")
    wait_ns, last = 0, -1
    for turn, call in enumerate(calls):
        record = Record(session.content, session.line, call, f"sub_requests[{turn}]: ")
        record.refuse_unknown((*_CALL, "tool_duration_ns"), "a request of llmservingsim")
        stamp_ns += wait_ns
        rows.add(record, stamp_ns)
        rows.sessions[-1], rows.turns[-1] = name, turn
        if turn:
            rows.parents[-1], rows.think_s[-1] = last, wait_ns / _NS_PER_S
        last = len(rows.lines) - 1
        wait_ns = 0
        if record.has("tool_duration_ns"):
            wait_ns = record.whole("tool_duration_ns", high=_NS_MAX)


def _check_tokens(record: Record, key: str, count_key: str) -> list[int]:
    tokens = record.ids(key)
    if len(tokens) != record.whole(count_key):
        raise record.error(f"{len(tokens)} {key} for {count_key} {record.row[count_key]}")
    return tokens


def _blocks(record: Record, prompt: int) -> Ids:
    """Give the chain ids of the full blocks of a prompt; none where its tokens are unknown."""
    if not record.has("input_tok_ids"):
        return np.zeros(0, np.uint64)
    try:
        tokens = np.array(_check_tokens(record, "input_tok_ids", "input_toks"), dtype=np.uint64)
    except OverflowError:
        raise record.error("input_tok_ids must lie between 0 and 2**64 - 1") from None
    hashed = chain_ids(np.array([prompt], dtype=np.int64), tokens)
    return hashed[BLOCK_TOKENS - 1 :: BLOCK_TOKENS]


def _recognise(layout: Layout) -> bool:
    return bool(layout.rows) and (
        {"input_toks", "output_toks"} <= layout.rows[0].keys()
        or {"session_id", "sub_requests"} <= layout.rows[0].keys()
    )


LLMSERVINGSIM = TraceFormat(
    name="llmservingsim",
    about="workloads of LLMServingSim, requests and sessions",
    kinds=("JSONL",),
    required=("arrival_time_ns",),
    optional=tuple(dict.fromkeys((*_FLAT, *_SESSION))),
    read=_read,
    recognise=_recognise,
)
