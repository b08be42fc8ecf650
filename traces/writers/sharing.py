"""What becomes of shared prefixes when a trace is written in blocks of another size."""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetsim.traces.reuse import shared_prompt_tokens
from fleetsim.traces.schema import Trace
from fleetsim.traces.writers.chains import WholeChains, whole_chains


def sharing_lost(trace: Trace, block_tokens: int) -> list[str]:
    """Say what the new blocks cannot express, and what they make known that was not.

    The measure is the prompt tokens that lie in a prefix which an earlier prompt had too.
    """
    if trace.block_ids is None:
        return [
            "block_ids: the trace says nothing of shared prefixes, and the format has to: every "
            "prompt is written as unlike all others"
        ]
    trace = dataclasses.replace(trace, adapter=None)  # the format has none; said of its column
    before = shared_prompt_tokens(trace) or 0
    chains = whole_chains(trace, block_tokens)
    after = shared_prompt_tokens(_with_chains(trace, chains, block_tokens)) or 0
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
