"""The KV blocks of a sequence: registered as they fill, given back in vLLM's order."""

from __future__ import annotations

from fleetsim.sim.engine.kv_cache import BlockPool, Node
from fleetsim.sim.engine.sequence import Sequence


def register_chain(pool: BlockPool, size: int, sequence: Sequence, tokens: int) -> None:
    """Make the full blocks of its shared prefix findable.

    Args:
        pool: of its replica.
        size: tokens of a block.
        sequence: with blocks for `tokens` tokens.
        tokens: up to where; what is registered already stays.
    """
    full = min(tokens // size, sequence.chain_blocks)
    done = sequence.registered
    if full <= done or not pool.enable_caching:
        return
    held = sequence.held
    start = 0
    for key, n_blocks in sequence.chain:
        end = start + n_blocks
        if end > done:
            pool.register(pool.node(key), max(done, start) - start, min(full, end) - start, held)
        if end >= full:
            break
        start = end
    sequence.registered = full


def free(
    pool: BlockPool,
    size: int,
    sequence: Sequence,
    registered_tokens: int,
    for_good: bool = False,
) -> None:
    """Give all its blocks back: hashed ones to the queue's end, the others to its front.

    Args:
        pool: of its replica.
        size: tokens of a block.
        sequence: with exact `computed`.
        registered_tokens: tokens whose full blocks can be found again.
        for_good: it will not come back, so nobody can find the blocks behind its chain.
    """
    total = -(-sequence.computed // size)
    if not pool.enable_caching:
        pool.n_blank += total
        return
    full = registered_tokens // size
    first = sequence.chain_blocks
    if first > sequence.registered:
        register_chain(pool, size, sequence, registered_tokens)
    done = max(sequence.registered, first)
    if full > done:
        if for_good:
            pool.release_unfindable(full - done)
        else:
            if sequence.tail is None:
                sequence.tail = Node(None)
            pool.register(sequence.tail, done - first, full - first, sequence.held)
    if sequence.held:
        pool.release(sequence.held)
    pool.n_blank += total - full
    sequence.held = []
    sequence.registered = 0
