"""JSON Lines for the timed_trace data set of `vllm bench serve`: fleetsim's plain columns.

vLLM (0.32 and 0.33, `vllm/benchmarks/datasets/datasets.py`) takes the names of its four columns as
options, so the file can be the plain format and keep what vLLM does not read. It makes a prompt of
as many tokens as ids times the block size allow, cut at the prompt's length: where ids are missing
the prompt is short without a word. So every started block has an id here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetsim.traces.schema import Categorical, Trace
from fleetsim.traces.writers.chains import whole_chains
from fleetsim.traces.writers.sharing import sharing_lost
from fleetsim.traces.writers.target import Target, stated_columns, write_lines

_BLOCK_TOKENS = 512
"""Of a trace without block ids."""

_WHY = {
    "parent": "the file has it, but vLLM waits for no answer: a request comes at its arrival_s",
    "think_s": "the file has it, but vLLM sends a closed-loop turn at its arrival_s",
    "adapter": "the file has it, but vLLM sends all to one model: equal prompts share their KV",
    "max_tokens": "the file has it, but vLLM asks for output_tokens and ignores the end of text",
}


def _lost(trace: Trace) -> list[str]:
    lost = [
        f"{name}: {_WHY.get(name, 'the file has it, but vLLM does not read it')}"
        for name in stated_columns(trace)
        if name != "block_ids"
    ]
    if not _parents_are_turns(trace):
        lost = [line for line in lost if not line.startswith(("parent:", "think_s:"))]
        lost.append(
            "parent, think_s: a request waits for one that is no other turn of its session, "
            "which the plain format cannot say; it comes at its arrival_s"
        )
    return lost + sharing_lost(trace, _block_tokens(trace))


def _block_tokens(trace: Trace) -> int:
    return trace.metadata.block_tokens or _BLOCK_TOKENS


def _parents_are_turns(trace: Trace) -> bool:
    """Whether session and turn name every parent, as the plain format has it in text."""
    if trace.parent is None or not (trace.parent >= 0).any():
        return True
    if trace.session is None or trace.turn is None:
        return False
    codes, turns = trace.session.codes, trace.turn
    waits = np.flatnonzero(trace.parent >= 0)
    parents = trace.parent[waits]
    placed = np.flatnonzero((codes >= 0) & (turns >= 0))
    names = codes[placed].astype(np.int64) * 2**31 + turns[placed]
    return bool(
        (codes[waits] >= 0).all()
        and (codes[waits] == codes[parents]).all()
        and (turns[waits] >= 0).all()
        and (turns[parents] >= 0).all()
        and len(np.unique(names)) == len(names)
    )


def _write(trace: Trace, path: Path) -> tuple[Path, ...]:
    write_lines(path, _lines(trace))
    return (path,)


def _lines(trace: Trace) -> Iterator[str]:
    block_tokens = _block_tokens(trace)
    chains = whole_chains(trace, block_tokens)
    columns: dict[str, list[Any]] = {
        "arrival_s": trace.arrival_s.tolist(),
        "prompt_tokens": trace.prompt_tokens.tolist(),
        "output_tokens": trace.output_tokens.tolist(),
    }
    _add(columns, "max_tokens", trace.max_tokens, 0)
    _add(columns, "turn", trace.turn, -1)
    _add(columns, "priority", trace.priority, None)
    for name in ("session", "tenant", "model", "slo_class", "adapter", "kind"):
        labels: Categorical | None = getattr(trace, name)
        if labels is not None:
            columns[name] = [None if code < 0 else labels.names[code] for code in labels.codes]
    if trace.parent is not None and trace.turn is not None and _parents_are_turns(trace):
        parent_turn = np.where(trace.parent >= 0, trace.turn[trace.parent], -1)
        _add(columns, "parent_turn", parent_turn, -1)
        if trace.think_s is not None:
            columns["think_s"] = [None if s != s else s for s in trace.think_s.tolist()]
    _add(columns, "source_row", trace.source_row, None)
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        fields = {
            name: value for name, value in zip(columns, values, strict=True) if value is not None
        }
        fields["block_tokens"] = block_tokens
        fields["block_ids"] = chains.ids[chains.offsets[row] : chains.offsets[row + 1]].tolist()
        yield json.dumps(fields, ensure_ascii=False) + "\n"


def _add(
    columns: dict[str, list[Any]], name: str, values: npt.NDArray[Any] | None, unknown: int | None
) -> None:
    if values is not None:
        columns[name] = [None if value == unknown else value for value in values.tolist()]


def _command(trace: Trace, path: Path) -> str:
    return (
        "PYTHONHASHSEED=0 vllm bench serve --backend vllm --model MODEL"
        f" --dataset-name timed_trace --dataset-path {shlex.quote(str(path))}"
        f" --num-prompts {len(trace)} --timed-trace-chunk-hash-size {_block_tokens(trace)}"
        " --timed-trace-sec-multiplier 1 --timed-trace-label-timestamp arrival_s"
        " --timed-trace-label-input-length prompt_tokens"
        " --timed-trace-label-output-length output_tokens --timed-trace-label-hash-ids block_ids"
    )


TIMED_TRACE = Target(
    "timed_trace", "JSONL for vllm bench serve, and plain for fleetsim", _lost, _write, _command
)
