"""Mooncake traces (FAST'25): JSONL with millisecond stamps and chain ids of 512-token blocks.

The published files have one id per started block, ``ceil(input_length / 512)``; files that leave
out the last, partial block are read as well. The four of the release (conversation, toolagent,
synthetic, and the arXiv one) have the same layout.

A file with these keys whose ids cover 16 tokens is no Mooncake trace: see ``timed_trace``.
Source: https://github.com/kvcache-ai/Mooncake, FAST25-release.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray, IntArray
from fleetsim.traces.sources.chain_ids import check_count
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.record import Record
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Chains, Rows
from fleetsim.traces.sources.table import row_error

BLOCK_TOKENS = 512
_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")


def _read(content: Content, layout: Layout) -> Rows:
    stamps: list[float] = []
    prompts, outputs, lines, lengths = array("q"), array("q"), array("q"), array("q")
    ids = array("Q")
    for line, row in read_objects(content):
        try:
            stamp, prompt, output, _ = (row[key] for key in _KEYS)
            if len(row) != len(_KEYS):
                raise KeyError
        except KeyError:
            raise _wrong_keys(content, line, row) from None
        if not (
            type(prompt) is type(output) is int and 0 <= prompt < 2**31 and 0 <= output < 2**31
        ):
            key = "output_length" if type(prompt) is int and 0 <= prompt < 2**31 else "input_length"
            right = "a whole number of at least 0"
            raise row_error(content.path, line, f"{key} is {row[key]!r}; must be {right}")
        if type(stamp) not in (int, float) or not 0 <= stamp < math.inf:
            right = "milliseconds of at least 0"
            raise row_error(content.path, line, f"timestamp is {stamp!r}; must be {right}")
        record = Record(content, line, row)
        chain = record.ids("hash_ids")
        check_count(record, "hash_ids", "input_length", prompt, BLOCK_TOKENS)
        try:
            ids.extend(chain)
        except OverflowError:
            raise record.error("hash_ids must lie between 0 and 2**64 - 1") from None
        stamps.append(stamp)
        prompts.append(prompt)
        outputs.append(output)
        lengths.append(len(chain))
        lines.append(line)
    return Rows(
        stamps=_array(stamps),
        ticks_per_s=1000,
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        line_numbers=np.array(lines, dtype=np.int64),
        chains=Chains(
            np.array(lengths, dtype=np.int64), np.array(ids, dtype=np.uint64), BLOCK_TOKENS
        ),
    )


def _array(stamps: list[float]) -> IntArray | FloatArray:
    """Keep whole milliseconds exact; a fraction anywhere makes all of them floats."""
    if all(type(stamp) is int and stamp < 2**63 for stamp in stamps):
        return np.array(stamps, dtype=np.int64)
    return np.array(stamps, dtype=np.float64)


def _wrong_keys(content: Content, line: int, row: dict[str, Any]) -> InputError:
    missing = [key for key in _KEYS if key not in row]
    if missing:
        return row_error(
            content.path, line, f"lacks {', '.join(missing)}; needs {', '.join(_KEYS)}"
        )
    extra = sorted(set(row) - set(_KEYS))
    return row_error(
        content.path, line, f"unknown key {extra[0]!r}; mooncake has only {', '.join(_KEYS)}"
    )


def fits_blocks(layout: Layout, block_tokens: int) -> bool:
    """Tell whether the ids of all rows in the head may cover that many tokens each."""
    for row in layout.rows:
        prompt, chain = row.get("input_length"), row.get("hash_ids")
        if type(prompt) is int and type(chain) is list:
            whole, rest = divmod(prompt, block_tokens)
            if len(chain) not in (whole, whole + (rest > 0)):
                return False
    return True


def _recognise(layout: Layout) -> bool:
    if any(isinstance(row.get("hash_ids"), dict) for row in layout.rows[:1]):
        return False  # ids by component: RAGPulse
    return fits_blocks(layout, BLOCK_TOKENS) or not fits_blocks(layout, 16)


MOONCAKE = TraceFormat(
    name="mooncake",
    about="Mooncake traces, FAST'25 release",
    kinds=("JSONL",),
    required=_KEYS,
    optional=(),
    read=_read,
    recognise=_recognise,
)
