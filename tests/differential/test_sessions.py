"""Answers that a trace's next turns continue are cached as they are in vLLM.

The reference engine works on token ids: it knows what a prompt and an output say. Here a trace is
made of the same conversations, which names the blocks of prompts alone, and whose answer each turn
follows; what the engine makes of that must be the same step for step, hit for hit.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from differential import fast_engine, reference_engine
from differential.compare import first_difference
from differential.coverage import happened
from differential.generate import generate
from differential.recording import Recording
from differential.workloads import Workload, prompt_token_ids

from fleetsim.traces import Trace, TraceMetadata, build_segments

Chains = list[list[tuple[int, int]]]


def as_trace(workload: Workload, block_tokens: int, partial_blocks: bool) -> Trace:
    """The workload as a trace would have it; ids number the prefixes."""
    requests = workload["requests"]
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    chains: list[list[int]] = []
    for index, request in enumerate(requests):
        tokens = prompt_token_ids(index, request)
        end = len(tokens) if partial_blocks else len(tokens) - block_tokens + 1
        chain = [-1]
        for begin in range(0, end, block_tokens):
            key = (chain[-1], tuple(tokens[begin : begin + block_tokens]))
            chain.append(numbers.setdefault(key, len(numbers)))
        chains.append(chain[1:])
    speaker = {
        request["output_segment"]: index
        for index, request in enumerate(requests)
        if request["output_segment"] is not None
    }
    parents = [
        max((speaker[s] for s, _ in request["chain"] if s in speaker), default=-1)
        for request in requests
    ]
    count = len(requests)
    arrivals = np.array([request["arrival_s"] for request in requests])
    return Trace(
        arrival_s=arrivals - arrivals[0],
        prompt_tokens=np.array([r["prompt_tokens"] for r in requests], np.int32),
        output_tokens=np.array([r["output_tokens"] for r in requests], np.int32),
        source_row=np.arange(count),
        metadata=TraceMetadata("test", count, count, block_tokens=block_tokens),
        block_offsets=np.cumsum([0, *map(len, chains)]),
        block_ids=np.array([i for chain in chains for i in chain], np.uint64),
        parent=np.array(parents),
    )


def chains_of(trace: Trace, size: int) -> Chains:
    """What a replica makes of a request's prefix, and of what its output says."""
    segments = build_segments(trace)
    assert segments is not None
    blocks = (segments.end_token // size - segments.start_token // size).tolist()
    prompts = [segments.segment_ids[a:b].tolist() for a, b in pairwise(segments.offsets.tolist())]
    outputs = [
        segments.output_segment_ids[a:b].tolist()
        for a, b in pairwise(segments.output_offsets.tolist())
    ]
    return [
        [(segment, blocks[segment]) for segment in (*path, *more) if blocks[segment]]
        for path, more in zip(prompts, outputs, strict=True)
    ]


def same(seed: int) -> Counter[str]:
    """What happened in the seed's workload, on which the trace and the tokens agree."""
    workload = generate(seed, scale=0.6)
    size = workload["engine"]["block_size"]
    expected = reference_engine.run(workload)
    ended = {name: r for name, r in expected.requests.items() if r.reason != "abort"}
    for block_tokens, partial_blocks in ((size, seed % 2 == 0), (size // 2, seed % 2 == 1)):
        trace = as_trace(workload, block_tokens, partial_blocks)
        for leaps in (False, True):
            found = fast_engine.run(workload, leaps, chains=chains_of(trace, size))
            text = first_difference(Recording(expected.rows, ended), found)
            assert text is None, f"seed {seed}, blocks of {block_tokens}, leaps {leaps}: {text}"
    return happened(workload, expected)


def test_the_trace_knows_as_much_as_the_tokens() -> None:
    counts: Counter[str] = Counter()
    for seed in range(30_000, 30_030):
        counts += same(seed)
    # else this would prove little
    assert counts["hits on an ended request's output"] > 50
    assert counts["hits on a running request's output"] > 0
    assert counts["preemptions"] > 50


def test_a_decode_that_got_no_token_has_its_next_block_found() -> None:
    """Under async scheduling too: nothing of it was in flight. A longer hunt found this one."""
    same(30_569)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(30_100, 30_700, 30))
def test_many_more(first: int) -> None:
    for seed in range(first, first + 30):
        same(seed)


def test_without_knowing_the_answers_there_are_fewer_hits() -> None:
    """The comparison above sees the difference."""
    differ = 0
    for seed in range(30_000, 30_030):
        workload = generate(seed, scale=0.6)
        size = workload["engine"]["block_size"]
        trace = as_trace(workload, size, True)
        prompts_only = Trace(
            **{
                name: getattr(trace, name)
                for name in trace.__dataclass_fields__
                if name != "parent"
            }
        )
        found = fast_engine.run(workload, chains=chains_of(prompts_only, size))
        differ += reference_engine.run(workload).rows != found.rows
    assert differ >= 5
