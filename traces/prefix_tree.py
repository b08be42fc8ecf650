"""Shared prompt prefixes as a path-compressed tree.

A recorded trace names every block of a prompt by a chain id, 512 tokens each in Mooncake's. Most
blocks are never shared, so a simulator that walks them one by one wastes its time. Here they are
joined into segments: maximal runs of tokens that the requests of a trace always have together.
A segment ends wherever the chains of two requests part, and wherever a chain ends, so every
request's prefix is a list of whole segments.

Where the trace tells what an output begins with, because a later prompt continues it
(`continuations.py`), the list goes on into the output.

Under another LoRA adapter the same tokens have another KV, and vLLM makes the adapter part of a
block's hash. So a segment belongs to one adapter, and each adapter has trees of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetsim.traces.continuations import LongChains, long_chains
from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Categorical, IntArray, Trace


@dataclass(frozen=True, slots=True, eq=False)
class PrefixSegments:
    """The segments of a trace and each request's path through them.

    Segments are numbered by first appearance in the trace, so a parent's number is below its
    children's.

    Attributes:
        offsets: int64, length n + 1; the path of request i, from the root, is
            ``segment_ids[offsets[i]:offsets[i + 1]]``.
        segment_ids: int32.
        start_token: int64 per segment, first prompt token that it covers.
        end_token: int64 per segment, one past the last.
        parent: int32 per segment, the one before it; -1 at the root.
        output_offsets: int64, length n + 1; behind that path, the output of request i fills
            ``output_segment_ids[output_offsets[i]:output_offsets[i + 1]]``, which a later prompt
            has too. No policy may see it.
        output_segment_ids: int32.
    """

    offsets: IntArray
    segment_ids: npt.NDArray[np.int32]
    start_token: IntArray
    end_token: IntArray
    parent: npt.NDArray[np.int32]
    output_offsets: IntArray
    output_segment_ids: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """The uncompressed tree: one node per distinct block id."""

    node: IntArray  # per chain position
    parent: IntArray  # per chain position, -1 at a chain's start
    first: IntArray  # per node, its first chain position


def _blocks(offsets: IntArray, block_ids: npt.NDArray[np.uint64]) -> _Blocks:
    _, first, node = np.unique(block_ids, return_index=True, return_inverse=True)
    node = node.astype(np.int64, copy=False).reshape(-1)
    parent = np.empty_like(node)
    parent[1:] = node[:-1]
    starts = offsets[:-1][np.diff(offsets) > 0]
    parent[starts] = -1
    return _Blocks(node, parent, first.astype(np.int64, copy=False))


def find_broken_chain(
    offsets: IntArray, block_ids: npt.NDArray[np.uint64]
) -> tuple[int, int, int] | None:
    """Look for a block id with two different predecessors.

    Chain ids stand for a whole prefix, so an id has one predecessor wherever it occurs (and
    therefore one depth).

    Args:
        offsets: as :attr:`Trace.block_offsets`.
        block_ids: as :attr:`Trace.block_ids`.

    Returns:
        (request, block id, earlier request) of the first contradiction, None when there is none.
    """
    if len(block_ids) == 0:
        return None
    return _find_broken(offsets, block_ids, _blocks(offsets, block_ids))


def _find_broken(
    offsets: IntArray, block_ids: npt.NDArray[np.uint64], blocks: _Blocks
) -> tuple[int, int, int] | None:
    usual = blocks.parent[blocks.first]
    broken = np.flatnonzero(blocks.parent != usual[blocks.node])
    if len(broken) == 0:
        return None
    position = int(broken[0])
    earlier = int(blocks.first[blocks.node[position]])
    request, before = (
        int(np.searchsorted(offsets, p, side="right")) - 1 for p in (position, earlier)
    )
    return request, int(block_ids[position]), before


def build_segments(trace: Trace) -> PrefixSegments | None:
    """Join the block chains of a trace into segments.

    The chain of a request covers ``min(prompt_tokens, ids x block_tokens)`` tokens, or, if a later
    prompt continues it, all of its prompt and as much of its output as that tells. Where two
    requests share an id of which one covers fewer tokens (its prompt ends inside the block), the
    segment is cut at the smaller count too.

    Returns:
        The segments, or None for a trace without block ids.

    Raises:
        InputError: an id with two different predecessors, or a chain longer than its prompt.
    """
    offsets, block_ids = trace.block_offsets, trace.block_ids
    block_tokens = trace.metadata.block_tokens
    if offsets is None or block_ids is None or block_tokens is None:
        return None
    lengths = np.diff(offsets)
    too_long = np.flatnonzero((lengths - 1) * block_tokens >= trace.prompt_tokens)
    if len(too_long):
        row = int(too_long[0])
        raise InputError(
            f"trace: request {row} has {lengths[row]} block ids of {block_tokens} tokens for a "
            f"prompt of {trace.prompt_tokens[row]}; the last block must begin inside the prompt"
        )
    if len(block_ids) == 0:
        none = np.zeros(0, np.int64)
        numbers = none.astype(np.int32)
        nothing = np.zeros_like(offsets)
        return PrefixSegments(nothing, numbers, none, none, numbers, nothing, numbers)
    ids = ids_by_adapter(block_ids, lengths, trace.adapter)
    chains = long_chains(trace, offsets, ids, block_tokens)
    block_ids = block_ids[chains.ids]
    blocks = _blocks(chains.offsets, ids[chains.ids])
    broken = _find_broken(chains.offsets, block_ids, blocks)
    if broken is not None:
        request, block, before = broken
        raise InputError(
            f"trace: block id {block} of request {request} follows another block than in request "
            f"{before}; a chain id must stand for one prefix"
        )
    return _cut_and_join(chains, blocks, trace.prompt_tokens.astype(np.int64), block_tokens)


def ids_by_adapter(
    block_ids: npt.NDArray[np.uint64], lengths: IntArray, adapter: Categorical | None
) -> npt.NDArray[np.uint64]:
    """Other ids, equal where both block and adapter are."""
    if adapter is None:
        return block_ids
    _, number = np.unique(block_ids, return_inverse=True)
    codes = np.repeat(adapter.codes.astype(np.int64) + 1, lengths)
    return (number.reshape(-1) * (len(adapter.names) + 1) + codes).astype(np.uint64)


def _cut_and_join(
    chains: LongChains, blocks: _Blocks, prompt_tokens: IntArray, block_tokens: int
) -> PrefixSegments:
    node, nodes = blocks.node, len(blocks.first)
    offsets, lengths = chains.offsets, np.diff(chains.offsets)
    chained = np.flatnonzero(lengths)
    last = offsets[1:][chained] - 1  # chain position of each request's last block
    ends = chains.end_tokens[chained]
    long = np.flatnonzero(chains.goes_on)
    split = offsets[long] + (prompt_tokens[long] - 1) // block_tokens  # where the prompt ends

    # A cut is (node, token), kept as one sortable number. Chains end at a cut, and so do prompts
    # whose chain goes on; a node with two children or more ends at one.
    position_in_chain = np.arange(len(node)) - np.repeat(offsets[:-1], lengths)
    depth = position_in_chain[blocks.first]
    parents = blocks.parent[blocks.first]
    children = np.bincount(parents[parents >= 0], minlength=nodes)
    forks = np.flatnonzero(children > 1)
    span = block_tokens * (int(depth.max()) + 2)
    chain_cuts = node[last] * span + ends
    fork_cuts = forks * span + (depth[forks] + 1) * block_tokens
    prompt_cuts = node[split] * span + prompt_tokens[long]
    cuts = np.unique(np.concatenate([chain_cuts, fork_cuts, prompt_cuts]))
    first_cut = np.searchsorted(cuts, np.arange(nodes + 1) * span)

    # Walk all chains at once: each position passes all cuts of its node, save that the last one
    # stops at the end of its prompt.
    passed = (first_cut[1:] - first_cut[:-1])[node]
    passed[last] = np.searchsorted(cuts, chain_cuts) + 1 - first_cut[node[last]]
    passed_before = np.concatenate([[0], np.cumsum(passed)])
    path = np.repeat(first_cut[node] - passed_before[:-1], passed) + np.arange(passed_before[-1])
    path_offsets = passed_before[offsets]
    prompt_stop = path_offsets[1:].copy()
    prompt_stop[long] = (
        passed_before[split] + np.searchsorted(cuts, prompt_cuts) + 1 - first_cut[node[split]]
    )

    # Number segments by first appearance; a segment reaches back to the cut before it.
    _, first_seen, number = np.unique(path, return_index=True, return_inverse=True)
    order = np.argsort(first_seen)
    renumber = np.empty_like(order)
    renumber[order] = np.arange(len(order))
    segment_ids = renumber[number.reshape(-1)].astype(np.int32)
    seen = first_seen[order]
    at_root = np.isin(seen, path_offsets[:-1])
    end_token = cuts[path[seen]] % span
    parent = np.where(at_root, -1, segment_ids[seen - 1])
    start_token = np.where(at_root, 0, end_token[parent])
    in_output = np.arange(len(path)) >= np.repeat(prompt_stop, np.diff(path_offsets))
    outputs = np.concatenate([[0], np.cumsum(path_offsets[1:] - prompt_stop)])
    return PrefixSegments(
        path_offsets - outputs,
        segment_ids[~in_output],
        start_token.astype(np.int64),
        end_token.astype(np.int64),
        parent.astype(np.int32),
        outputs,
        segment_ids[in_output],
    )
