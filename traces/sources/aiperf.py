"""AIPerf's and Dynamo's wider form of the Mooncake layout: JSONL, times in milliseconds.

Beside ``timestamp`` a row may have a ``session_id``, and a ``delay`` instead of a time: it then
comes that long after the answer to the row of its session above it (a closed loop). ``hash_ids``
are optional; how many tokens one covers is told by the file: the largest of 512, 256, 128, 64, 32
and 16 that fits every row. The tools make the text of a block from its id alone, so ids are made
chain ids here. Dynamo's names (``input_tokens, output_tokens, created_time, delay_ms``) are read
too. Prompts given as text cannot be read: fleetsim has no tokenizer.

Format: MooncakeTrace in src/aiperf/dataset/loader/models.py of https://github.com/ai-dynamo/aiperf.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np

from fleetsim.traces.schema import Categorical
from fleetsim.traces.sources.chain_ids import ChainColumn, check_count
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.record import Record, exact_stamps
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

_BLOCK_SIZES = (512, 256, 128, 64, 32, 16)
_TEXT = ("text_input", "messages", "payload")
_AIPERF = {
    "timestamp": "timestamp",
    "delay": "delay",
    "input": "input_length",
    "output": "output_length",
}
_DYNAMO = {
    "timestamp": "created_time",
    "delay": "delay_ms",
    "input": "input_tokens",
    "output": "output_tokens",
}


def _known(names: Mapping[str, str]) -> tuple[str, ...]:
    return (*names.values(), "hash_ids", "session_id", "extra", "type")


def _read(content: Content, layout: Layout, names: Mapping[str, str], name: str) -> Rows:
    stamps: list[float] = []
    think_s: list[float] = []
    prompts, outputs, lines = array("q"), array("q"), array("q")
    parents, turns = array("q"), array("q")
    sessions: list[str | None] = []
    last: dict[str, int] = {}
    blocks = ChainColumn()
    chained: list[Record] = []
    for line, row in read_objects(content):
        record = Record(content, line, row)
        for key in _TEXT:
            if record.has(key):
                raise record.error(f"{key} is text; give {names['input']}, its number of tokens")
        record.refuse_unknown(_known(names), name)
        session = record.text("session_id")
        parent = -1 if session is None else last.get(session, -1)
        turns.append(-1 if session is None else (turns[parent] + 1 if parent >= 0 else 0))
        if record.has(names["timestamp"]):
            stamps.append(record.number(names["timestamp"], "milliseconds"))
            think_s.append(np.nan)
            parents.append(-1)
        elif record.has(names["delay"]) and parent >= 0:
            delay_ms = record.number(names["delay"], "milliseconds")
            stamps.append(stamps[parent] + delay_ms)
            think_s.append(delay_ms / 1000)
            parents.append(parent)
        else:
            raise record.error(
                f"lacks {names['timestamp']}; only a later row of a session may have "
                f"{names['delay']} instead"
            )
        prompts.append(record.whole(names["input"]))
        outputs.append(record.whole(names["output"]))
        if record.has("hash_ids"):
            blocks.add(record, "hash_ids")
            chained.append(Record(content, line, {"hash_ids": row["hash_ids"]}))
        else:
            blocks.add_none()
        sessions.append(session)
        if session is not None:
            last[session] = len(lines)
        lines.append(line)
    size = _block_tokens(chained, blocks, prompts, names["input"]) if chained else 0
    waits = any(parent >= 0 for parent in parents)
    return Rows(
        stamps=exact_stamps(stamps),
        ticks_per_s=1000,
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        line_numbers=np.array(lines, dtype=np.int64),
        chains=blocks.chains(size),
        session=Categorical.from_values(sessions) if last else None,
        turn=np.array(turns, dtype=np.int64) if last else None,
        parent=np.array(parents, dtype=np.int64) if waits else None,
        think_s=np.array(think_s, dtype=np.float64) if waits else None,
    )


def _block_tokens(
    chained: list[Record], blocks: ChainColumn, prompts: array[int], input_key: str
) -> int:
    """Find the largest block that fits all rows with ids; name the first row that none fits."""
    counts = np.array(blocks.lengths, dtype=np.int64)
    tokens = np.array(prompts, dtype=np.int64)
    for size in _BLOCK_SIZES:
        whole, rest = np.divmod(tokens, size)
        if ((counts == 0) | (counts == whole) | (counts == whole + (rest > 0))).all():
            return size
    rows = np.flatnonzero(counts)
    for record, row in zip(chained, rows, strict=False):
        check_count(record, "hash_ids", input_key, int(tokens[row]), _BLOCK_SIZES[0])
    raise chained[0].error("hash_ids cover blocks of no one size")


def _lists(layout: Layout) -> bool:
    return not any(isinstance(row.get("hash_ids"), dict) for row in layout.rows[:1])


def _format(name: str, about: str, names: Mapping[str, str]) -> TraceFormat:
    required = (names["input"], names["output"])
    return TraceFormat(
        name=name,
        about=about,
        kinds=("JSONL",),
        required=required,
        optional=tuple(key for key in (*_known(names), *_TEXT) if key not in required),
        read=lambda content, layout: _read(content, layout, names, name),
        recognise=_lists,
        within=("mooncake",),
    )


AIPERF = _format("aiperf", "AIPerf's wider form of Mooncake's layout", _AIPERF)
DYNAMO = _format("dynamo", "the same with Dynamo's names", _DYNAMO)
