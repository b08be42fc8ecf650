"""Prompts that go on where an earlier prompt and the answer to it ended.

A session's next prompt holds the one before and the answer to it. Engines cache the blocks of
generated tokens as well as those of prompts, so the next turn finds both. A trace names the blocks
of prompts alone; but where a request's child (whose `parent` it is) continues its chain, the
child's blocks behind the parent's prompt are those that the parent's output fills.

That a child continues its parent is believed where nothing speaks against it: it was asked of the
same adapter, its prompt is no shorter than the parent's prompt and output together, its chain
begins with all full blocks of the parent's prompt, and has more. (A session whose history was
summarised, or whose thinking was left out of it, mostly fails the second or third.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetsim.traces.schema import IntArray, Trace


@dataclass(frozen=True, slots=True, eq=False)
class LongChains:
    """Chains that go on into the outputs, where a later prompt tells what follows.

    Attributes:
        offsets: int64, length n + 1; request i owns ``ids[offsets[i]:offsets[i + 1]]``.
        ids: where ``Trace.block_ids`` has them: int64, or all as they are.
        end_tokens: int64 per request, tokens of prompt and output that its chain covers.
        goes_on: whether that is more than its prompt.
    """

    offsets: IntArray
    ids: IntArray | slice
    end_tokens: IntArray
    goes_on: npt.NDArray[np.bool_]


def long_chains(
    trace: Trace, offsets: IntArray, ids: npt.NDArray[np.uint64], block_tokens: int
) -> LongChains:
    """Extend the chains of requests that a later one continues.

    Args:
        trace: whose requests they are.
        offsets, ids: its chains; other ids for other adapters.
        block_tokens: tokens of a block.
    """
    prompts = trace.prompt_tokens.astype(np.int64)
    lengths = np.diff(offsets)
    heirs, ends = _heirs(trace, offsets, ids, block_tokens)
    goes_on = heirs >= 0
    if not goes_on.any():
        as_it_is = np.minimum(prompts, lengths * block_tokens)
        return LongChains(offsets, slice(None), as_it_is, goes_on)
    # The heir may have an heir of its own, whose chain is the same and longer.
    source = np.where(goes_on, heirs, np.arange(len(trace)))
    while True:
        further = source[source]
        if (further == source).all():
            break
        source = further
    covered = lengths[source] * block_tokens
    end_tokens = np.minimum(np.where(goes_on, ends, prompts), covered)
    taken = np.where(goes_on, -(-end_tokens // block_tokens), lengths)
    long_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(taken)])
    shift = np.repeat(offsets[:-1][source] - long_offsets[:-1], taken)
    return LongChains(long_offsets, shift + np.arange(long_offsets[-1]), end_tokens, goes_on)


def _heirs(
    trace: Trace, offsets: IntArray, ids: npt.NDArray[np.uint64], block_tokens: int
) -> tuple[IntArray, IntArray]:
    """Find the child that continues each request's chain, -1 for none, and up to which token.

    Of several children the first; where another one differs from it, only as far as they agree.
    """
    heirs = np.full(len(trace), -1, np.int64)
    prompts = trace.prompt_tokens.astype(np.int64)
    ends = prompts + trace.output_tokens
    if trace.parent is None:
        return heirs, ends
    lengths = np.diff(offsets)
    full = np.minimum(prompts // block_tokens, lengths)
    child = np.flatnonzero(trace.parent >= 0)
    parent = trace.parent[child]
    whole = full[parent] == prompts[parent] // block_tokens
    right = whole & (lengths[child] > full[parent]) & (prompts[child] >= ends[parent])
    if trace.adapter is not None:
        right &= trace.adapter.codes[child] == trace.adapter.codes[parent]
    child, parent = child[right], parent[right]
    # A chain id stands for all before it: if the last of them is the same, all are.
    last = full[parent] - 1
    same = (last < 0) | (ids[offsets[parent] + last] == ids[offsets[child] + last])
    child, parent = child[same], parent[same]
    _, first = np.unique(parent, return_index=True)
    heirs[parent[first]] = child[first]
    others = np.ones(len(child), bool)
    others[first] = False
    for row, other in zip(parent[others].tolist(), child[others].tolist(), strict=True):
        heir = int(heirs[row])
        begin, end = int(full[row]), int(min(full[heir], full[other]))
        ours = ids[offsets[heir] + begin : offsets[heir] + end]
        theirs = ids[offsets[other] + begin : offsets[other] + end]
        parted = np.flatnonzero(ours != theirs)
        if len(parted):
            ends[row] = min(ends[row], (begin + int(parted[0])) * block_tokens)
    heirs[ends <= prompts] = -1
    return heirs, ends
