"""What a trace tells of outputs: never more than the tokens say, and all that a next turn shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from fleetsim.traces import Categorical, Trace, TraceMetadata, build_segments, trace_stats

Path = list[tuple[int, int]]


def make_trace(
    chains: list[list[int]], prompts: list[int], outputs: list[int], parents: list[int], size: int
) -> Trace:
    count = len(chains)
    return Trace(
        arrival_s=np.arange(count, dtype=float),
        prompt_tokens=np.array(prompts, np.int32),
        output_tokens=np.array(outputs, np.int32),
        source_row=np.arange(count),
        block_offsets=np.cumsum([0, *map(len, chains)]),
        block_ids=np.array([i for chain in chains for i in chain], np.uint64),
        parent=np.array(parents, np.int64),
        metadata=TraceMetadata("test", count, count, block_tokens=size),
    )


def paths(trace: Trace) -> tuple[list[Path], list[Path]]:
    """(segment, end token) of prompts, and of outputs."""
    segments = build_segments(trace)
    assert segments is not None
    ends = segments.end_token.tolist()

    def of(offsets: list[int], ids: list[int]) -> list[Path]:
        return [[(i, ends[i]) for i in ids[a:b]] for a, b in pairwise(offsets)]

    prompts = of(segments.offsets.tolist(), segments.segment_ids.tolist())
    outputs = of(segments.output_offsets.tolist(), segments.output_segment_ids.tolist())
    for prompt, output in zip(prompts, outputs, strict=True):
        starts = [int(segments.start_token[i]) for i, _ in (*prompt, *output)]
        assert starts == [0, *(end for _, end in (*prompt, *output))][: len(starts)]
    return prompts, outputs


def told(trace: Trace) -> list[int]:
    """Tokens of prompt and output that each request's path covers."""
    prompts, outputs = paths(trace)
    return [
        (output or prompt or [(0, 0)])[-1][1]
        for prompt, output in zip(prompts, outputs, strict=True)
    ]


def test_two_turns() -> None:
    # blocks of 4: the first prompt is 6 tokens, its answer 5, the next prompt 14
    trace = make_trace([[1, 2], [1, 3, 4, 5]], [6, 14], [5, 9], [-1, 0], 4)
    prompts, outputs = paths(trace)
    assert prompts == [[(0, 6)], [(0, 6), (1, 11), (2, 14)]]
    assert outputs == [[(1, 11)], []]
    # with one id per full block, the last tokens of the second prompt are its own
    floor = make_trace([[1], [1, 3, 4]], [6, 14], [5, 9], [-1, 0], 4)
    assert paths(floor) == ([[(0, 6)], [(0, 6), (1, 11), (2, 12)]], [[(1, 11)], []])


def test_the_answer_is_told_as_far_as_the_next_prompt_is_named() -> None:
    trace = make_trace([[1], [1, 3]], [6, 11], [5, 9], [-1, 0], 4)
    assert told(trace) == [8, 8]


@pytest.mark.parametrize(
    ("second", "prompt", "why"),
    [
        ([1, 3, 4], 10, "too short to hold the answer"),
        ([7, 8, 9, 5], 14, "begins otherwise"),
        ([1, 3, 4, 5], 14, None),
    ],
)
def test_who_does_not_go_on(second: list[int], prompt: int, why: str | None) -> None:
    trace = make_trace([[1, 2], second], [6, prompt], [5, 9], [-1, 0], 4)
    assert (told(trace)[0] == 6) == (why is not None)


def test_no_parent_no_answer() -> None:
    trace = make_trace([[1, 2], [1, 3, 4, 5]], [6, 14], [5, 9], [-1, -1], 4)
    assert told(trace)[0] == 6
    assert told(replace(trace, parent=None)) == told(trace)


def test_another_adapter_has_another_cache() -> None:
    trace = make_trace([[1, 2], [1, 3, 4, 5]], [6, 14], [5, 9], [-1, 0], 4)
    other = replace(trace, adapter=Categorical.from_values([None, "x"]))
    assert told(other)[0] == 6
    short = make_trace([[], [3, 4]], [3, 8], [5, 9], [-1, 0], 4)  # nothing to compare
    assert told(short)[0] == 8
    assert told(replace(short, adapter=Categorical.from_values(["x", None])))[0] == 0


def test_children_who_differ_tell_as_much_as_they_agree_on() -> None:
    chains = [[1], [1, 2, 3, 4, 5], [1, 2, 3, 6, 7]]
    trace = make_trace(chains, [4, 20, 20], [14, 1, 1], [-1, 0, 0], 4)
    assert told(trace)[0] == 12
    apart = make_trace(
        [[1], [1, 2, 3, 4, 5], [1, 9, 8, 6, 7]], [4, 20, 20], [14, 1, 1], [-1, 0, 0], 4
    )
    assert told(apart)[0] == 4


@pytest.mark.parametrize("seed", range(60))
def test_against_the_tokens(seed: int) -> None:
    """Conversations as tokens; what they share is what the segments say."""
    rng = Random(seed)
    size = rng.choice([2, 3, 5])
    partial = rng.random() < 0.5
    streams: list[list[int]] = []  # prompt and output
    prompts: list[int] = []
    parents: list[int] = []
    fresh = iter(range(10**6))

    def say(most: int) -> list[int]:
        return [next(fresh) for _ in range(rng.randint(1, most))]

    system = say(12)
    for _ in range(rng.randint(1, 6)):
        history, parent = system[: rng.choice([0, len(system)])] + say(9), -1
        for _ in range(rng.randint(1, 5)):
            prompts.append(len(history))
            streams.append(history + say(11))
            parents.append(parent)
            parent = len(streams) - 1
            answer = len(streams[-1]) - len(history)
            if answer > 1 and rng.random() < 0.2:  # the answer is left out, and it shows
                history = history + say(answer - 1)
            else:
                history = streams[-1] + say(6)
    numbers: dict[tuple[int, ...], int] = {}
    chains = []
    for stream, prompt in zip(streams, prompts, strict=True):
        ends = list(range(size, prompt + 1, size))
        if partial and prompt % size:
            ends.append(prompt)
        chains.append([numbers.setdefault(tuple(stream[:end]), len(numbers)) for end in ends])
    outputs = [len(s) - p for s, p in zip(streams, prompts, strict=True)]
    trace = make_trace(chains, prompts, outputs, parents, size)
    prompt_paths, output_paths = paths(trace)
    whole = [a + b for a, b in zip(prompt_paths, output_paths, strict=True)]
    for i, path in enumerate(whole):
        assert not path or path[-1][1] <= len(streams[i])
        for j in range(i):
            common = 0
            for (a, end), (b, _) in zip(path, whole[j], strict=False):
                if a != b:
                    break
                common = end
            # what is called the same is the same
            assert streams[i][:common] == streams[j][:common]
    for i, parent in enumerate(parents):
        goes_on = parent >= 0 and streams[i][: len(streams[parent])] == streams[parent]
        if goes_on:
            named = prompts[i] if partial else prompts[i] // size * size
            shown = min(len(streams[parent]), max(named, 0))
            if shown > prompts[parent]:
                assert whole[parent][-1][1] >= shown
                have = {segment for segment, _ in whole[i]}
                assert all(segment in have for segment, _ in whole[parent])
    # every segment is in some prompt, so the ideal share is one of prompts
    assert {s for path in whole for s, _ in path} == {s for path in prompt_paths for s, _ in path}
    share = trace_stats(trace).ideal_prefix_hit_share
    assert share is not None
    assert 0 <= share < 1
