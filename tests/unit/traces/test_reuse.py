"""Stack distances against a plain LRU cache, and against measured hit rates of a real trace."""

from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from fleetsim.traces import Categorical, InputError, Trace, load_sample, load_trace, trace_stats
from fleetsim.traces.reuse import hit_curve, prefix_reuse, usual_cache_sizes

from .some_traces import chained_traces


def chains_of(trace: Trace) -> list[list[int]]:
    assert trace.block_offsets is not None
    assert trace.block_ids is not None
    ends = pairwise(trace.block_offsets.tolist())
    return [trace.block_ids[begin:end].tolist() for begin, end in ends]


def lru_hits(trace: Trace, cache_blocks: int) -> int:
    """Serve the requests from a cache of so many blocks; hits are what a chain begins with."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for chain in chains_of(trace):
        for block in chain:
            if block not in cache:
                break
            hits += 1
        for block in reversed(chain):
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > cache_blocks:
                cache.popitem(last=False)
    return hits


@settings(max_examples=200)
@given(chained_traces())
def test_each_size_hits_as_an_lru_cache_of_it(trace: Trace) -> None:
    reuse = prefix_reuse(trace)
    assert reuse is not None
    blocks = sum(map(len, chains_of(trace)))
    assert reuse.total_blocks == blocks
    if not blocks:
        assert np.isnan(reuse.hit_share(None))
        return
    for size in range(1, reuse.distinct_blocks + 2):
        assert round(reuse.hit_share(size) * blocks) == lru_hits(trace, size)
    assert reuse.hit_share(None) == reuse.hit_share(reuse.distinct_blocks)


def test_tokens_of_a_partial_block_count_as_they_are() -> None:
    trace = Trace(
        arrival_s=np.zeros(2),
        prompt_tokens=np.array([15, 12], np.int32),
        output_tokens=np.ones(2, np.int32),
        source_row=np.arange(2),
        metadata=replace(load_sample().metadata, rows_read=2, rows_kept=2, block_tokens=10),
        block_offsets=np.array([0, 2, 4]),
        block_ids=np.array([1, 2, 1, 2], np.uint64),
    )
    reuse = prefix_reuse(trace)
    assert reuse is not None
    assert reuse.hit_token_share(None) == 12 / 27
    assert reuse.hit_token_share(1) == 10 / 27
    with pytest.raises(InputError, match="at least 1"):
        reuse.hit_share(0)
    adapters = replace(trace, adapter=Categorical.from_values(["a", "b"]))
    apart = prefix_reuse(adapters)
    assert apart is not None
    assert apart.hit_share(None) == 0


def test_a_trace_without_prefixes_has_none() -> None:
    sample = load_sample()
    assert prefix_reuse(replace(sample, block_ids=None, block_offsets=None)) is None


def test_without_limit_it_is_the_share_of_the_segments() -> None:
    """Two ways to the same number: no block of the sample is shared in part."""
    sample = load_sample()
    reuse = prefix_reuse(sample)
    assert reuse is not None
    assert reuse.hit_token_share(None) == pytest.approx(trace_stats(sample).ideal_prefix_hit_share)
    curve = hit_curve(reuse, [*usual_cache_sizes(reuse), None])
    assert [size for size, _, _ in curve] == [100, 300, 1000, 3000, 10_000, 30_000, None]
    assert sorted(curve, key=lambda point: point[1]) == curve


def test_only_what_block_ids_name_is_shared() -> None:
    """A prompt's rest without an id is its own, even where its child is believed to repeat it."""
    trace = Trace(
        arrival_s=np.array([0.0, 1.0, 2.0]),
        prompt_tokens=np.array([15, 30, 30], np.int32),
        output_tokens=np.array([5, 5, 5], np.int32),
        source_row=np.arange(3),
        metadata=replace(load_sample().metadata, rows_read=3, rows_kept=3, block_tokens=10),
        block_offsets=np.array([0, 1, 4, 7]),
        block_ids=np.array([1, 1, 2, 3, 1, 2, 3], np.uint64),
        parent=np.array([-1, 0, -1]),
    )
    assert trace_stats(trace).ideal_prefix_hit_share == 40 / 75
    reuse = prefix_reuse(trace)
    assert reuse is not None
    assert reuse.hit_token_share(None) == 40 / 75


def test_mooncake_conversation_hits_as_measured(shared_dir: Path) -> None:
    trace = load_trace(shared_dir / "traces/mooncake_fast25/conversation_trace.jsonl.gz")
    reuse = prefix_reuse(trace)
    assert reuse is not None
    shares = [reuse.hit_share(1000 * size) for size in (1, 3, 10, 30, 50, 100)]
    assert [round(s, 4) for s in shares] == [0.0445, 0.0653, 0.2116, 0.3257, 0.3546, 0.3637]
    assert round(reuse.hit_share(None), 4) == 0.3664
    assert round(reuse.hit_token_share(None), 3) == 0.374
