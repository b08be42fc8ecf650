"""RAGPulse: JSONL of a university's question answering, prompts made of retrieved components.

A prompt is a list of components: system prompt, passages, history, web search, user input, each
with an id. Five files beside the trace (``1_sys_prompt.jsonl`` to ``5_web_search.jsonl``) say how
many tokens each has. Two prompts share what they have in common from the start: the same
components in the same order. The common schema wants blocks of one size, so the prompt is cut
into 16-token blocks, and a block's id is the hash of the components up to the one that holds its
last token, and of the place of that token. The 6 to 12 tokens by which ``input_length`` exceeds
the components (a template) are taken to be at the end, each request's own.

Without the five files nothing is known about the lengths of components, so prefixes are "none" and
a warning says so. ``timestamp`` is text: seconds from the start. Turns of a session are numbered by
arrival.

Source: https://github.com/flashserve/RAGPulse (MIT).
"""

from __future__ import annotations

import dataclasses
from array import array

import numpy as np

from fleetsim.traces.schema import Categorical
from fleetsim.traces.sources.burstgpt import number_turns
from fleetsim.traces.sources.component_blocks import ComponentBlocks
from fleetsim.traces.sources.content import Content, open_content
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.record import Record, exact_stamps
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

BLOCK_TOKENS = 16
_KEYS = ("timestamp", "input_length", "output_length", "hash_ids", "session_id")
# component, in the order of the prompt: file that holds its lengths, key of its id there
_SIDES = {
    "sys_prompt": ("1_sys_prompt.jsonl", "sys_prompt_id"),
    "passages_ids": ("2_passages.jsonl", "passage_id"),
    "history": ("3_history.jsonl", "history_id"),
    "web_search": ("5_web_search.jsonl", "web_search_id"),
    "user_input": ("4_user_input.jsonl", "user_input_id"),
}


def _read(content: Content, layout: Layout) -> Rows:
    lengths = _component_lengths(content)
    stamps: list[float] = []
    prompts, outputs, lines = array("q"), array("q"), array("q")
    sessions: list[str | None] = []
    blocks = ComponentBlocks(BLOCK_TOKENS)
    for line, row in read_objects(content):
        record = Record(content, line, row)
        record.refuse_unknown(_KEYS, "ragpulse")
        stamps.append(_seconds(record))
        prompts.append(record.whole("input_length"))
        outputs.append(record.whole("output_length"))
        sessions.append(record.text("session_id"))
        components = _components(record)
        if lengths is not None:
            blocks.add(record, prompts[-1], _with_tokens(record, components, lengths))
        lines.append(line)
    warning = (
        "no prefixes: the lengths of components are in 1_sys_prompt.jsonl to 5_web_search.jsonl, "
        "which are not beside the file"
    )
    rows = Rows(
        stamps=exact_stamps(stamps),
        ticks_per_s=1,
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        line_numbers=np.array(lines, dtype=np.int64),
        chains=None if lengths is None else blocks.chains(),
        session=Categorical.from_values(sessions),
        warnings=(warning,) if lengths is None else (),
    )
    return dataclasses.replace(rows, turn=number_turns(rows.session, rows))


def _seconds(record: Record) -> float:
    value = record.row.get("timestamp")
    text = value if isinstance(value, str) else ""
    if not (text.isascii() and text.isdigit()):
        raise record.error(f'timestamp is {value!r}; must be whole seconds as text, such as "82"')
    return float(text)


def _components(record: Record) -> list[int]:
    parts = record.row.get("hash_ids")
    if not isinstance(parts, dict):
        raise record.error("hash_ids must be an object of component lists")
    inner = Record(record.content, record.line, parts, "hash_ids: ")
    inner.refuse_unknown(_SIDES, "ragpulse")
    return [component for name in _SIDES for component in inner.ids(name)]


def _with_tokens(
    record: Record, components: list[int], lengths: dict[int, int]
) -> list[tuple[int, int]]:
    try:
        return [(component, lengths[component]) for component in components]
    except KeyError as error:
        raise record.error(f"component {error} is in none of the files of lengths") from None


def _component_lengths(content: Content) -> dict[int, int] | None:
    """Read the five files beside the trace; None unless all are there."""
    folder = content.path.parent
    if not all((folder / name).is_file() for name, _ in _SIDES.values()):
        return None
    lengths: dict[int, int] = {}
    for name, key in _SIDES.values():
        with open_content(folder / name) as side:
            for line, row in read_objects(side):
                record = Record(side, line, row)
                record.refuse_unknown((key, "token_length"), name)
                component = record.whole(key, high=2**63 - 1)
                if component in lengths:
                    raise record.error(f"{key} {component} occurs twice; each must occur once")
                lengths[component] = record.whole("token_length")
    return lengths


def _recognise(layout: Layout) -> bool:
    return any(isinstance(row.get("hash_ids"), dict) for row in layout.rows[:1])


RAGPULSE = TraceFormat(
    name="ragpulse",
    about="RAGPulse, prompts of retrieved components",
    kinds=("JSONL",),
    required=_KEYS,
    optional=(),
    read=_read,
    recognise=_recognise,
)
