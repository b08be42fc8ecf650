"""The prefix cache alone, on a real trace, gives the hit ratios that were computed independently.

Mooncake's conversation trace in order of arrival, every block id taken as one full block, the last
one too, each request released before the next one. The longest request has fewer blocks than the
smallest pool. The oracle (an LRU that forgets the tail of a chain first, as vLLM does) was computed
apart from this project; the trace's description states it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from invariants.fleets import MOONCAKE

from fleetsim.sim.engine.kv_cache import BlockPool, Holding
from fleetsim.traces import Trace, build_segments, load_trace

HIT_RATIOS = {
    None: 0.3664,
    1_000: 0.0445,
    3_000: 0.0653,
    10_000: 0.2116,
    30_000: 0.3257,
    50_000: 0.3546,
    100_000: 0.3637,
}

Chain = list[tuple[int, int]]


@pytest.fixture(scope="module")
def mooncake(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / MOONCAKE)


@pytest.fixture(scope="module")
def by_segment(mooncake: Trace) -> list[Chain]:
    """Chains as the simulator holds them: runs of blocks, cut where prompts part."""
    assert mooncake.block_offsets is not None
    ids = np.diff(mooncake.block_offsets)
    whole = replace(mooncake, prompt_tokens=(ids * 512).astype(np.int32))
    segments = build_segments(whole)
    assert segments is not None
    blocks = ((segments.end_token - segments.start_token) // 512).tolist()
    offsets, path = segments.offsets.tolist(), segments.segment_ids.tolist()
    return [
        [(segment, blocks[segment]) for segment in path[start:stop]]
        for start, stop in pairwise(offsets)
    ]


@pytest.fixture(scope="module")
def by_block(mooncake: Trace) -> list[Chain]:
    """The same chains block by block, with nothing left to cut."""
    assert mooncake.block_offsets is not None
    assert mooncake.block_ids is not None
    offsets, ids = mooncake.block_offsets.tolist(), mooncake.block_ids.tolist()
    return [[(block, 1) for block in ids[start:stop]] for start, stop in pairwise(offsets)]


def hit_ratio(chains: list[Chain], usable_blocks: int | None) -> float:
    """Blocks found in the cache, of all blocks asked for."""
    asked = sum(n for chain in chains for _, n in chain)
    pool = BlockPool((asked if usable_blocks is None else usable_blocks) + 1, True)
    found = 0
    for chain in chains:
        wanted = sum(n for _, n in chain)
        held = pool.match(chain, None, wanted)
        hits = sum(run.hi - lo for run, lo in held)
        found += hits
        pool.touch(held)
        pool.take(wanted - hits)
        _register_rest(pool, chain, hits, held)
        pool.release(held)
    pool.check_integrity(0)
    return found / asked


def _register_rest(pool: BlockPool, chain: Chain, hits: int, held: list[Holding]) -> None:
    start = 0
    for segment, n in chain:
        if start + n > hits:
            pool.register(pool.node(segment), max(hits - start, 0), n, held)
        start += n


@pytest.mark.parametrize("usable_blocks", HIT_RATIOS)
def test_hit_ratio_of_mooncake(by_segment: list[Chain], usable_blocks: int | None) -> None:
    assert round(hit_ratio(by_segment, usable_blocks), 4) == HIT_RATIOS[usable_blocks]


def test_block_by_block(by_block: list[Chain]) -> None:
    assert round(hit_ratio(by_block, 10_000), 4) == HIT_RATIOS[10_000]


@pytest.mark.slow
@pytest.mark.parametrize("usable_blocks", HIT_RATIOS)
def test_block_by_block_at_every_size(
    by_block: list[Chain], by_segment: list[Chain], usable_blocks: int | None
) -> None:
    assert hit_ratio(by_block, usable_blocks) == hit_ratio(by_segment, usable_blocks)


def test_the_longest_request_fits_the_smallest_pool(by_block: list[Chain]) -> None:
    assert max(map(len, by_block)) == 247


def test_a_request_that_hits_all_finds_all(by_segment: list[Chain]) -> None:
    chain = by_segment[0]
    n = sum(blocks for _, blocks in chain)
    assert hit_ratio([chain, chain], None) == 0.5
    assert hit_ratio([chain, chain, chain, chain], n) == 0.75
