"""Block ids for blocks of another size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import IntArray, Trace


@dataclass(frozen=True, slots=True, eq=False)
class WholeChains:
    """One id per started block of every prompt.

    Attributes:
        offsets: int64, as :attr:`Trace.block_offsets`.
        ids: int64 chain ids, numbered from 0 by first appearance.
        own_blocks: how many of them no other request can share, because the trace does not say
            what is in them: they stand for it alone.
    """

    offsets: IntArray
    ids: IntArray
    own_blocks: int


def whole_chains(trace: Trace, block_tokens: int) -> WholeChains:
    """Cut prompts into blocks of ``block_tokens``, the last one possibly shorter.

    Two prompts get the same id for a block exactly where the trace says that they are equal to
    the end of it; where it says nothing, a block gets an id of its own. So no sharing is invented,
    and what may be lost is the shared part of a block that is not shared to its end.

    Raises:
        InputError: a block below 1 token.
    """
    if block_tokens < 1:
        raise InputError(f"block of {block_tokens} tokens: must be at least 1")
    prompts = trace.prompt_tokens.astype(np.int64)
    lengths = -(-prompts // block_tokens)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    row = np.repeat(np.arange(len(trace)), lengths)
    place = np.arange(offsets[-1]) - offsets[row]
    end = np.minimum((place + 1) * block_tokens, prompts[row])

    own = np.ones(len(row), bool)
    names = -1 - np.arange(len(row))  # below 0: a block of its prompt's own
    size = trace.metadata.block_tokens
    if trace.block_offsets is not None and trace.block_ids is not None and size is not None:
        # The id of the block that holds the last token stands for everything up to there; with
        # the place it tells apart two blocks that end inside the same one of the trace.
        known = np.diff(trace.block_offsets)[row] * size
        own = known < end
        source = trace.block_offsets[row] + (end - 1) // size
        _, number = np.unique(trace.block_ids, return_inverse=True)
        names[~own] = number.reshape(-1)[source[~own]] * (int(place.max()) + 1) + place[~own]
    _, first, ids = np.unique(names, return_index=True, return_inverse=True)
    renumber = np.empty(len(first), np.int64)
    renumber[np.argsort(first)] = np.arange(len(first))
    return WholeChains(offsets, renumber[ids.reshape(-1)], int(own.sum()))
