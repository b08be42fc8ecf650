"""Replay files of benchmark tools in the layout of Mooncake's, but in seconds.

``timed_trace`` is what ``vllm bench serve --dataset-name timed_trace`` reads by its defaults:
``timestamp`` in seconds (``--timed-trace-sec-multiplier 1``) and 16-token blocks
(``--timed-trace-chunk-hash-size 16``). The tool makes a block's text from its id alone, so ids are
made chain ids here. A file with Mooncake's 512-token blocks and milliseconds is a ``mooncake`` one.

``guidellm`` is GuideLLM's kind ``trace_synthetic``: the same without ids, every prompt its own.
(Its kinds ``mooncake`` and ``weka`` are those formats.)

Sources: vllm/benchmarks/datasets of https://github.com/vllm-project/vllm;
src/guidellm/data/deserializers/trace_synthetic.py of https://github.com/vllm-project/guidellm.
"""

from __future__ import annotations

from array import array

import numpy as np

from fleetsim.traces.sources.chain_ids import ChainColumn, check_count
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.mooncake import fits_blocks
from fleetsim.traces.sources.record import Record, exact_stamps
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

BLOCK_TOKENS = 16
_LENGTHS = ("timestamp", "input_length", "output_length")
_BLOCKS = (*_LENGTHS, "hash_ids")


def _read(content: Content, keys: tuple[str, ...], name: str) -> Rows:
    stamps: list[float] = []
    prompts, outputs, lines = array("q"), array("q"), array("q")
    blocks = ChainColumn()
    for line, row in read_objects(content):
        record = Record(content, line, row)
        record.refuse_unknown(keys, name)
        stamps.append(record.number("timestamp", "seconds"))
        prompts.append(record.whole("input_length"))
        outputs.append(record.whole("output_length"))
        if "hash_ids" in keys:
            blocks.add(record, "hash_ids")
            check_count(record, "hash_ids", "input_length", prompts[-1], BLOCK_TOKENS)
        lines.append(line)
    return Rows(
        stamps=exact_stamps(stamps),
        ticks_per_s=1,
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        line_numbers=np.array(lines, dtype=np.int64),
        chains=blocks.chains(BLOCK_TOKENS),
    )


def _recognise(layout: Layout) -> bool:
    if any(isinstance(row.get("hash_ids"), dict) for row in layout.rows[:1]):
        return False
    return fits_blocks(layout, BLOCK_TOKENS) and not fits_blocks(layout, 512)


TIMED_TRACE = TraceFormat(
    name="timed_trace",
    about="vLLM's timed_trace by its defaults: seconds, 16-token blocks",
    kinds=("JSONL",),
    required=_BLOCKS,
    optional=(),
    read=lambda content, layout: _read(content, _BLOCKS, "timed_trace"),
    recognise=_recognise,
)
GUIDELLM = TraceFormat(
    name="guidellm",
    about="GuideLLM's trace_synthetic: seconds, lengths alone",
    kinds=("JSONL",),
    required=_LENGTHS,
    optional=(),
    read=lambda content, layout: _read(content, _LENGTHS, "guidellm"),
)
