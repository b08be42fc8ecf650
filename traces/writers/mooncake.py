"""Mooncake JSONL: whole milliseconds, lengths, chain ids of 512-token blocks; nothing else.

Ids are numbered from 0 by first appearance, as in the published files.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fleetsim.traces.schema import Trace
from fleetsim.traces.sources.mooncake import BLOCK_TOKENS
from fleetsim.traces.writers.chains import whole_chains
from fleetsim.traces.writers.sharing import sharing_lost
from fleetsim.traces.writers.target import Target, stated_columns, write_lines

_WHY = {
    "parent": "a request no longer waits for the answer of another one: it comes at its arrival_s",
    "think_s": "a closed-loop turn comes at its arrival_s, whatever the fleet does",
    "adapter": "all ask for the base model, so equal prompts of two adapters share their KV",
}


def _lost(trace: Trace) -> list[str]:
    lost = [
        f"{name}: {_WHY.get(name, 'the format has no such column')}"
        for name in stated_columns(trace)
        if name != "block_ids"
    ]
    off_s = np.abs(_milliseconds(trace) / 1000 - trace.arrival_s)
    moved = int((off_s > 0).sum())
    if moved:
        lost.append(
            f"arrival_s: {moved:,} arrivals are not whole milliseconds; they move by up to "
            f"{off_s.max() * 1e3:.3g} ms"
        )
    return lost + sharing_lost(trace, BLOCK_TOKENS)


def _milliseconds(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.rint(trace.arrival_s * 1000).astype(np.int64)


def _write(trace: Trace, path: Path) -> tuple[Path, ...]:
    write_lines(path, _lines(trace))
    return (path,)


def _lines(trace: Trace) -> Iterator[str]:
    chains = whole_chains(trace, BLOCK_TOKENS)
    stamps = _milliseconds(trace)
    for row in range(len(trace)):
        yield (
            json.dumps(
                {
                    "timestamp": int(stamps[row]),
                    "input_length": int(trace.prompt_tokens[row]),
                    "output_length": int(trace.output_tokens[row]),
                    "hash_ids": chains.ids[chains.offsets[row] : chains.offsets[row + 1]].tolist(),
                }
            )
            + "\n"
        )


def _command(trace: Trace, path: Path) -> str:
    return (
        "PYTHONHASHSEED=0 vllm bench serve --backend vllm --model MODEL"
        f" --dataset-name timed_trace --dataset-path {shlex.quote(str(path))}"
        f" --num-prompts {len(trace)} --timed-trace-chunk-hash-size {BLOCK_TOKENS}"
        " --timed-trace-sec-multiplier 0.001"
    )


MOONCAKE = Target("mooncake", "Mooncake JSONL, 512-token blocks, ms", _lost, _write, _command)
