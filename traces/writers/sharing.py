"""What becomes of shared prefixes when a trace is written in blocks of another size."""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetsim.traces.prefix_tree import build_segments
from fleetsim.traces.schema import Trace
from fleetsim.traces.writers.chains import WholeChains, whole_chains


def sharing_lost(trace: Trace, block_tokens: int) -> list[str]:
    """Say what the new blocks cannot express, and what they make known that was not.

    The measure is the prompt tokens that lie in a prefix which an earlier request had too.
    """
    if trace.block_ids is None:
        return [
            "block_ids: the trace says nothing of shared prefixes, and the format has to: every "
            "prompt is written as unlike all others"
        ]
    trace = dataclasses.replace(trace, adapter=None)  # the format has none; said of its column
    before = shared_prefix_tokens(trace)
    chains = whole_chains(trace, block_tokens)
    after = shared_prefix_tokens(_with_chains(trace, chains, block_tokens))
    if before == after:
        return []
    return [
        f"block_ids: {before - after:,} of {before:,} shared prefix tokens are no longer shared, "
        f"as prompts part inside a block of {block_tokens:,} tokens"
    ]


def _with_chains(trace: Trace, chains: WholeChains, block_tokens: int) -> Trace:
    return dataclasses.replace(
        trace,
        block_offsets=chains.offsets,
        block_ids=chains.ids.astype(np.uint64),
        metadata=dataclasses.replace(trace.metadata, block_tokens=block_tokens),
    )


def shared_prefix_tokens(trace: Trace) -> int:
    """Count the prompt tokens that lie in a prefix which an earlier request had too."""
    segments = build_segments(trace)
    assert segments is not None
    tokens = segments.end_token - segments.start_token
    return int(tokens[segments.segment_ids].sum()) - int(tokens.sum())
