"""Segments against a brute-force trie over single tokens."""

from collections import defaultdict
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traces import (
    Categorical,
    InputError,
    Trace,
    TraceMetadata,
    build_segments,
    trace_stats,
)


def make_trace(
    chains: list[list[int]], prompt_tokens: list[int], block_tokens: int | None
) -> Trace:
    count = len(chains)
    return Trace(
        arrival_s=np.zeros(count),
        prompt_tokens=np.array(prompt_tokens, dtype=np.int32),
        output_tokens=np.ones(count, dtype=np.int32),
        source_row=np.arange(count),
        block_offsets=np.cumsum([0, *map(len, chains)]),
        block_ids=np.array([i for chain in chains for i in chain], dtype=np.uint64),
        metadata=TraceMetadata("test", count, count, block_tokens=block_tokens),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Random trees of chain ids, with ids as large as uint64 goes and prompts that end anywhere."""
    block_tokens = draw(st.integers(1, 4))
    nodes = draw(st.integers(1, 12))
    parents = [draw(st.integers(-1, node - 1)) for node in range(nodes)]
    spread = draw(st.sampled_from([1, 3, 2**60]))
    chains, prompts = [], []
    for _ in range(draw(st.integers(1, 10))):
        node = draw(st.integers(-1, nodes - 1))
        chain: list[int] = []
        while node >= 0:
            chain.insert(0, node * spread + 1)
            node = parents[node]
        chains.append(chain)
        covered = len(chain) * block_tokens
        # ends inside its last block, or after it as far as one dropped partial block
        prompts.append(
            draw(st.integers(max(covered - block_tokens + 1, 1), covered + block_tokens))
        )
    return make_trace(chains, prompts, block_tokens)


def token_paths(trace: Trace) -> list[list[tuple[int, int]]]:
    """Name every covered prompt token by (block id, position): the uncompressed trie."""
    block_tokens = trace.metadata.block_tokens
    assert block_tokens is not None
    assert trace.block_offsets is not None
    assert trace.block_ids is not None
    paths = []
    for row in range(len(trace)):
        chain = trace.block_ids[trace.block_offsets[row] : trace.block_offsets[row + 1]].tolist()
        covered = min(int(trace.prompt_tokens[row]), len(chain) * block_tokens)
        paths.append([(chain[token // block_tokens], token) for token in range(covered)])
    return paths


@settings(max_examples=300, deadline=None)
@given(traces())
def test_segments_are_the_maximal_runs_shared_by_the_same_requests(trace: Trace) -> None:
    segments = build_segments(trace)
    assert segments is not None
    paths = token_paths(trace)
    users: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row, path in enumerate(paths):
        for token in path:
            users[token].add(row)

    named: dict[int, tuple[tuple[int, int], ...]] = {}  # segment -> its tokens
    for row, path in enumerate(paths):
        wanted = [tuple(run) for _, run in groupby(path, key=lambda token: users[token])]
        found = segments.segment_ids[segments.offsets[row] : segments.offsets[row + 1]].tolist()
        assert len(found) == len(wanted)
        for before, segment, run in zip([-1, *found], found, wanted, strict=False):
            assert named.setdefault(segment, run) == run
            assert (segments.start_token[segment], segments.end_token[segment] - 1) == (
                run[0][1],
                run[-1][1],
            )
            assert segments.parent[segment] == before
    assert len(set(named.values())) == len(named) == len(segments.parent)
    first_seen = list(dict.fromkeys(segments.segment_ids.tolist()))
    assert first_seen == list(range(len(named)))


@settings(max_examples=100, deadline=None)
@given(traces())
def test_ideal_hit_share_counts_tokens_that_an_earlier_request_had(trace: Trace) -> None:
    seen: set[tuple[int, int]] = set()
    hits = 0
    for path in token_paths(trace):
        hits += len(seen.intersection(path))
        seen.update(path)
    share = trace_stats(trace).ideal_prefix_hit_share
    assert share == pytest.approx(hits / trace.prompt_tokens.sum())


def test_a_worked_example() -> None:
    # blocks of 10 tokens; 1-2 shared by all, then 3 or 4; the last one ends inside block 2
    trace = make_trace([[1, 2, 3], [1, 2, 4, 5], [1, 2]], [30, 38, 17], 10)
    segments = build_segments(trace)
    assert segments is not None
    assert segments.offsets.tolist() == [0, 3, 6, 7]
    assert segments.segment_ids.tolist() == [0, 1, 2, 0, 1, 3, 0]
    assert segments.start_token.tolist() == [0, 17, 20, 20]
    assert segments.end_token.tolist() == [17, 20, 30, 38]
    assert segments.parent.tolist() == [-1, 0, 1, 1]


def test_another_adapter_has_segments_of_its_own() -> None:
    trace = make_trace([[1, 2], [1, 2], [1, 3], [1, 2], [1, 2]], [20] * 5, 10)
    adapters = Categorical.from_values([None, "x", "x", "y", "x"])
    segments = build_segments(replace(trace, adapter=adapters))
    assert segments is not None
    paths = [segments.segment_ids[a:b].tolist() for a, b in pairwise(segments.offsets.tolist())]
    assert paths == [[0], [1, 2], [1, 3], [4], [1, 2]]
    assert segments.start_token.tolist() == [0, 0, 10, 10, 0]
    assert segments.parent.tolist() == [-1, -1, 1, 1, -1]


def test_one_adapter_for_all_changes_nothing() -> None:
    trace = make_trace([[2**63, 7], [2**63, 9]], [20, 20], 10)
    both = [trace, replace(trace, adapter=Categorical.from_values(["x", "x"]))]
    found = [build_segments(t) for t in both]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].segment_ids.tolist() == found[1].segment_ids.tolist() == [0, 1, 0, 2]


def test_a_trace_without_block_ids_has_no_segments() -> None:
    trace = Trace(
        arrival_s=np.zeros(1),
        prompt_tokens=np.ones(1, dtype=np.int32),
        output_tokens=np.ones(1, dtype=np.int32),
        source_row=np.arange(1),
        metadata=TraceMetadata("test", 1, 1),
    )
    assert build_segments(trace) is None


def test_requests_without_blocks_among_others() -> None:
    segments = build_segments(make_trace([[], [1], [], [1, 2], []], [3, 4, 3, 8, 3], 4))
    assert segments is not None
    assert segments.offsets.tolist() == [0, 0, 1, 1, 3, 3]
    empty = build_segments(make_trace([[], []], [3, 4], 4))
    assert empty is not None
    assert empty.offsets.tolist() == [0, 0, 0]
    assert len(empty.parent) == 0


@pytest.mark.parametrize(
    "chains", [[[1, 2], [3, 2]], [[1, 2], [2]], [[2], [1, 2]], [[1, 1]], [[1, 2, 1, 2]]]
)
def test_ids_that_do_not_stand_for_one_prefix_are_refused(chains: list[list[int]]) -> None:
    with pytest.raises(InputError, match="a chain id must stand for one prefix"):
        build_segments(make_trace(chains, [len(chain) * 4 for chain in chains], 4))


def test_a_chain_longer_than_its_prompt_is_refused() -> None:
    with pytest.raises(InputError, match="request 1 has 2 block ids of 4 tokens for a prompt of 4"):
        build_segments(make_trace([[1], [2, 3]], [4, 4], 4))
