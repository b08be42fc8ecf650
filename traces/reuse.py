"""How often a prefix cache of a given size could hit, at best.

The cache is one for the whole trace, holds so many blocks, and drops the least recently used one.
A request's chain is touched from its tail to its head, as vLLM frees blocks, so the tail goes
first and what is cached of a chain is always a beginning of it. Then a cache of C blocks holds
exactly the C most recently touched ones, and one pass answers for every size: a block hits if
fewer than C other blocks were touched since (its stack distance; Mattson et al., 1970).

This is the ideal: requests take no time, and a request finds what the one before it left behind.
It looks at prompts alone: an answer that the next turn's prompt repeats counts as new there, while
engines keep the blocks of generated tokens as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleetsim.traces.errors import InputError
from fleetsim.traces.prefix_tree import build_segments, ids_by_adapter
from fleetsim.traces.schema import IntArray, Trace


@dataclass(frozen=True, slots=True, eq=False)
class PrefixReuse:
    """The stack distances of a trace's blocks.

    Attributes:
        distance_blocks: int64, one per block of a prompt, in the order of ``Trace.block_ids``: in
            how small a cache, in blocks, it would hit; 0 where no earlier request had it.
        covered_tokens: int64, prompt tokens that each of them covers.
        prompt_tokens: of all requests.
        distinct_blocks: how many different blocks there are: a larger cache hits no more.
    """

    distance_blocks: IntArray
    covered_tokens: IntArray
    prompt_tokens: int
    distinct_blocks: int

    @property
    def total_blocks(self) -> int:
        """Blocks of all prompts."""
        return len(self.distance_blocks)

    def hit_share(self, cache_blocks: int | None) -> float:
        """Share of all blocks that hit; None is a cache without limit. NaN without any block."""
        hits = self._hits(cache_blocks)
        return float(hits.mean()) if len(hits) else float("nan")

    def hit_token_share(self, cache_blocks: int | None) -> float:
        """Share of all prompt tokens that lie in a block that hits; None is without limit."""
        return int(self.covered_tokens[self._hits(cache_blocks)].sum()) / self.prompt_tokens

    def _hits(self, cache_blocks: int | None) -> npt.NDArray[np.bool_]:
        if cache_blocks is None:
            return self.distance_blocks > 0
        if cache_blocks < 1:
            raise InputError(f"cache of {cache_blocks} blocks: must be at least 1")
        return (self.distance_blocks > 0) & (self.distance_blocks <= cache_blocks)


def prefix_reuse(trace: Trace) -> PrefixReuse | None:
    """Find the stack distance of every block; None for a trace without block ids.

    Blocks are those of the trace, `metadata.block_tokens` long, the last one of a prompt possibly
    shorter. Under another LoRA adapter a block is another one.
    """
    offsets, ids = trace.block_offsets, trace.block_ids
    block_tokens = trace.metadata.block_tokens
    if offsets is None or ids is None or block_tokens is None:
        return None
    lengths = np.diff(offsets)
    place = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
    prompts = np.repeat(trace.prompt_tokens.astype(np.int64), lengths)
    covered = np.minimum(block_tokens, prompts - place * block_tokens)
    distances = _stack_distances(offsets, ids_by_adapter(ids, lengths, trace.adapter))
    return PrefixReuse(
        distances,
        covered,
        int(trace.prompt_tokens.sum(dtype=np.int64)),
        int((distances == 0).sum()),
    )


def shared_prompt_tokens(trace: Trace) -> int | None:
    """Count the prompt tokens that lie in a prefix which an earlier prompt had too.

    An unlimited cache of any granularity could serve them. None for a trace without block ids.
    """
    # without parents, segments are what block ids name, and of prompts alone
    segments = build_segments(replace(trace, parent=None, think_s=None))
    if segments is None:
        return None
    tokens = segments.end_token - segments.start_token
    # every segment is a miss once, where it first appears, and a hit ever after
    return int(tokens[segments.segment_ids].sum()) - int(tokens.sum())


def usual_cache_sizes(reuse: PrefixReuse) -> list[int]:
    """Sizes at which to look: 1, 3, 10, 30, ... from 100 blocks until nothing more is gained."""
    sizes = [factor * 10**power for power in range(2, 16) for factor in (1, 3)]
    return [size for size in sizes if size < reuse.distinct_blocks]


def hit_curve(
    reuse: PrefixReuse, sizes: Sequence[int | None]
) -> list[tuple[int | None, float, float]]:
    """Give (cache size in blocks, share of blocks that hit, share of prompt tokens) per size."""
    return [(size, reuse.hit_share(size), reuse.hit_token_share(size)) for size in sizes]


def _stack_distances(offsets: IntArray, ids: npt.NDArray[np.uint64]) -> IntArray:
    """Count, for each block, the distinct blocks from its last touch until its request comes.

    Touches are numbered by time: request by request, within one from the tail to the head. Let a
    block be touched by a request that begins at touch S, and before that at touch p. The distinct
    blocks touched in (p, S) are the touches j in it whose own previous touch was at p or earlier,
    as each has just one such touch. All touches j <= p have their previous touch before p too, so
    these are the j < S with a previous touch of at most p, less the p + 1 up to p.
    """
    lengths = np.diff(offsets)
    count = len(ids)
    if count == 0:
        return np.zeros(0, np.int64)
    begin = np.repeat(offsets[:-1], lengths)
    end = np.repeat(offsets[1:], lengths)
    touch = begin + (end - 1 - np.arange(count))  # of each chain position; its own inverse
    _, block = np.unique(ids[touch], return_inverse=True)  # by touch
    order = np.argsort(block.reshape(-1), kind="stable")
    again = np.flatnonzero(np.diff(block.reshape(-1)[order]) == 0)
    previous = np.full(count, -1, np.int64)
    previous[order[again + 1]] = order[again]
    seen = np.flatnonzero(previous >= 0)
    last = previous[seen]
    # + 1 shifts "never" from -1 to 0
    within = _count_below(previous + 1, begin[seen], last + 2) - (last + 1)
    distances = np.zeros(count, np.int64)
    distances[seen] = within + 1
    return distances[touch]


def _count_below(values: IntArray, ends: IntArray, bounds: IntArray) -> IntArray:
    """Count, for each query, the ``values[:end]`` that are below its bound.

    All queries at once, bit by bit from the highest (a wavelet matrix; Claude and Navarro, 2012).
    """
    counts = np.zeros(len(ends), np.int64)
    begins = np.zeros(len(ends), np.int64)
    for bit in reversed(range(int(max(values.max(), bounds.max(initial=0))).bit_length())):
        ones = (values >> bit) & 1
        zeros_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(1 - ones)])
        first, last = zeros_before[begins], zeros_before[ends]
        high = ((bounds >> bit) & 1).astype(bool)
        # a bound with this bit set lies above all values that agree so far and lack it
        counts += np.where(high, last - first, 0)
        begins = np.where(high, zeros_before[-1] + begins - first, first)
        ends = np.where(high, zeros_before[-1] + ends - last, last)
        values = np.concatenate([values[ones == 0], values[ones == 1]])
    return counts
