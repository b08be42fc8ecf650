"""Qwen-Bailian traces: JSONL with the chats of a cloud's model service, 16-token blocks.

``parent_chat_id`` names the request whose conversation this one goes on with, -1 for none. All
requests come at their own recorded time (an open loop); the parent is kept for what wants it. The
topmost known parent's ``chat_id`` is the session. ``turn`` counts from 1 in the file.

A parent outside the file (the recording is two hours of a longer one), or one that is recorded
later than its child, is left out and counted in a warning. Ids are hashes of single blocks
("apply salted SipHash to each block"), so they are made chain ids here. By the publisher's word,
the thinking tokens of an answer are gone in the next prompt, and the last block of a prompt may
change: less is shared than the client's view of the conversation suggests.

Source: https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon (Apache-2.0; cite KVCache in
the Wild, ATC 2025).
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from fleetsim.traces.schema import Categorical, FloatArray, IntArray
from fleetsim.traces.sources.chain_ids import ChainColumn, check_count
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.record import Record, exact_stamps
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

BLOCK_TOKENS = 16
_KEYS = (
    "chat_id",
    "parent_chat_id",
    "timestamp",
    "input_length",
    "output_length",
    "type",
    "turn",
    "hash_ids",
)
_ID_MAX = 2**63 - 1


def _read(content: Content, layout: Layout) -> Rows:
    stamps: list[float] = []
    prompts, outputs, turns, lines = array("q"), array("q"), array("q"), array("q")
    chats, parents = array("q"), array("q")
    kinds: list[str | None] = []
    blocks = ChainColumn()
    row_of: dict[int, int] = {}
    for line, row in read_objects(content):
        record = Record(content, line, row)
        record.refuse_unknown(_KEYS, "bailian")
        chat = record.whole("chat_id", high=_ID_MAX)
        if chat in row_of:
            before = lines[row_of[chat]]
            raise record.error(f"chat_id {chat} is in row {before} too; each must occur once")
        row_of[chat] = len(lines)
        chats.append(chat)
        parents.append(record.whole("parent_chat_id", low=-1, high=_ID_MAX))
        stamps.append(record.number("timestamp", "seconds"))
        prompts.append(record.whole("input_length"))
        outputs.append(record.whole("output_length"))
        turns.append(record.whole("turn", low=1) - 1)
        kinds.append(record.text("type"))
        blocks.add(record, "hash_ids")
        check_count(record, "hash_ids", "input_length", prompts[-1], BLOCK_TOKENS)
        lines.append(line)

    parent = np.array([row_of.get(chat, -1) for chat in parents], dtype=np.int64)
    stated = np.array(parents, dtype=np.int64) >= 0
    outside = int((stated & (parent < 0)).sum())
    times = exact_stamps(stamps)
    later = _come_later(parent, times)
    parent[later] = -1
    warnings = []
    if outside:
        warnings.append(f"{outside} requests go on with a chat that is not in the file")
    if later.any():
        warnings.append(
            f"{later.sum()} requests go on with a chat that is recorded later; link left out"
        )
    return Rows(
        stamps=times,
        ticks_per_s=1,
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        line_numbers=np.array(lines, dtype=np.int64),
        chains=blocks.chains(BLOCK_TOKENS),
        session=Categorical.from_values(str(chats[row]) for row in _topmost(parent, times)),
        turn=np.array(turns, dtype=np.int64),
        parent=parent if (parent >= 0).any() else None,
        kind=Categorical.from_values(kinds),
        warnings=tuple(warnings),
    )


def _come_later(parent: IntArray, stamps: IntArray | FloatArray) -> npt.NDArray[np.bool_]:
    """Find rows whose parent does not come before them; by the row where the times are equal."""
    rows = np.arange(len(parent))
    before, after = stamps[parent], stamps
    wrong = (before > after) | ((before == after) & (parent >= rows))
    return np.asarray((parent >= 0) & wrong)


def _topmost(parent: IntArray, stamps: IntArray | FloatArray) -> IntArray:
    """Follow the parents of each row to the first one, in the order of arrival."""
    top = np.arange(len(parent))
    for row in np.lexsort((top, stamps)):
        if parent[row] >= 0:
            top[row] = top[parent[row]]
    return top


BAILIAN = TraceFormat(
    name="bailian",
    about="Qwen-Bailian traces of Alibaba Cloud",
    kinds=("JSONL",),
    required=_KEYS,
    optional=(),
    read=_read,
)
