"""The pool of runs is a pool of single blocks: the same hits and the same evictions.

Held against a literal pool, one block at a time in vLLM's free queue, under random operations of
sequences that share prefixes: begin on what is cached, grow, register late (which duplicates),
end for good, or be preempted and resume.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from fleetsim.sim.engine.kv_cache import BlockPool, Holding, Node

Key = tuple[object, int]  # (segment or owner, index of the block in it)

SEGMENTS = {1: 3, 2: 2, 3: 4, 4: 1, 5: 1, 6: 2}
"""Blocks of each segment."""
CHAINS = [[], [1], [1, 2], [1, 3], [1, 2, 4], [5], [5, 6]]
"""All paths from a root; a segment always stands behind the same ones."""
USABLE = 14


class LiteralPool:
    """vLLM's block pool, block by block: a free queue, and for each hash its blocks."""

    def __init__(self, usable: int) -> None:
        self.queue = deque(range(usable))
        self.key: dict[int, Key] = {}
        self.ref = dict.fromkeys(range(usable), 0)
        self.blocks: dict[Key, list[int]] = {}
        self.evicted: list[Key] = []

    def find(self, keys: list[Key]) -> list[int]:
        found = []
        for key in keys:
            if not self.blocks.get(key):
                break
            found.append(self.blocks[key][0])
        return found

    def touch(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.ref[block] == 0:
                self.queue.remove(block)
            self.ref[block] += 1

    def take(self, n: int) -> list[int]:
        taken = [self.queue.popleft() for _ in range(n)]
        for block in taken:
            key = self.key.pop(block, None)
            if key is not None:
                self.blocks[key].remove(block)
                self.evicted.append(key)
            self.ref[block] = 1
        return taken

    def register(self, block: int, key: Key) -> None:
        self.key[block] = key
        self.blocks.setdefault(key, []).append(block)

    def release(self, blocks: list[int]) -> None:
        """Tail first; hashed ones to the end, the others to the front."""
        for block in reversed(blocks):
            self.ref[block] -= 1
            if self.ref[block] == 0:
                if block in self.key:
                    self.queue.append(block)
                else:
                    self.queue.appendleft(block)


@dataclass(eq=False)
class User:
    """A sequence in both pools. Behind its chain come blocks that are its own."""

    name: int
    chain: list[int]
    held: list[Holding] = field(default_factory=list)
    tail: Node | None = None
    blocks: list[int] = field(default_factory=list)  # in the literal pool
    registered: int = 0

    @property
    def shared(self) -> int:
        return sum(SEGMENTS[segment] for segment in self.chain)

    @property
    def keys(self) -> list[Key]:
        own = [(("own", self.name), i) for i in range(USABLE)]
        return [(segment, i) for segment in self.chain for i in range(SEGMENTS[segment])] + own


class Both:
    """The pool under test and the literal one, through the same operations."""

    def __init__(self) -> None:
        self.pool = BlockPool(USABLE + 1, True)
        self.literal = LiteralPool(USABLE)
        self.users: list[User] = []
        self.preempted: list[User] = []
        self.names = 0
        self.hits = 0

    def begin(self, user: User, more: int, limit: int) -> None:
        chain = [(segment, SEGMENTS[segment]) for segment in user.chain]
        pieces = self.pool.match(chain, user.tail, limit)
        keys = user.keys if user.tail is not None else user.keys[: user.shared]
        found = self.literal.find(keys[:limit])
        hits = sum(run.hi - lo for run, lo in pieces)
        assert hits == len(found)
        self.hits += hits
        idle = sum(run.hi - lo for run, lo in pieces if run.ref == 0)
        assert idle == sum(self.literal.ref[block] == 0 for block in found)
        if more > self.pool.num_free_blocks - idle:
            return
        self.pool.touch(pieces)
        self.literal.touch(found)
        self.pool.take(more)
        user.held, user.registered = pieces, hits
        user.blocks = found + self.literal.take(more)
        self.users.append(user)
        if user in self.preempted:
            self.preempted.remove(user)

    def grow(self, user: User, more: int) -> None:
        more = min(more, self.pool.num_free_blocks)
        self.pool.take(more)
        user.blocks += self.literal.take(more)

    def register(self, user: User, upto: int) -> None:
        """The shared part only; what is one's own is registered when it is let go."""
        upto = min(upto, len(user.blocks), user.shared)
        start = 0
        for segment in user.chain:
            end = start + SEGMENTS[segment]
            lo, hi = max(user.registered, start), min(upto, end)
            if lo < hi:
                self.pool.register(self.pool.node(segment), lo - start, hi - start, user.held)
                for index in range(lo, hi):
                    self.literal.register(user.blocks[index], user.keys[index])
            start = end
        user.registered = max(user.registered, upto)

    def let_go(self, user: User, full: int, for_good: bool) -> None:
        """As the scheduler does it: `full` blocks have a hash, the rest go to the queue's front."""
        full = max(min(full, len(user.blocks)), user.registered)
        self.register(user, full)
        done = max(user.registered, user.shared)
        if full > done:
            for index in range(done, full):
                self.literal.register(user.blocks[index], user.keys[index])
            if for_good:
                self.pool.release_unfindable(full - done)
            else:
                if user.tail is None:
                    user.tail = Node(None)
                self.pool.register(user.tail, done - user.shared, full - user.shared, user.held)
        self.pool.release(user.held)
        self.pool.n_blank += len(user.blocks) - full
        self.literal.release(user.blocks)
        user.held, user.blocks, user.registered = [], [], 0
        self.users.remove(user)
        if not for_good:
            self.preempted.append(user)

    def check(self) -> None:
        distinct = {block for user in self.users for block in user.blocks}
        self.pool.check_integrity(len(distinct))
        assert self.pool.num_free_blocks == len(self.literal.queue) == USABLE - len(distinct)
        for chain in CHAINS:
            keys = User(-1, chain).keys[: User(-1, chain).shared]
            cached = [(segment, SEGMENTS[segment]) for segment in chain]
            pieces = self.pool.match(cached, None, USABLE)
            assert sum(run.hi - lo for run, lo in pieces) == len(self.literal.find(keys))

    def do(self, kind: int, who: int, amount: int, other: int) -> None:
        if kind == 0:
            self.names += 1
            self.begin(User(self.names, CHAINS[who % len(CHAINS)]), amount % 6, other)
        elif kind == 1 and self.preempted:
            self.begin(self.preempted[who % len(self.preempted)], amount % 6, other)
        elif self.users:
            user = self.users[who % len(self.users)]
            if kind == 2:
                self.grow(user, amount % 4)
            elif kind == 3:
                self.register(user, amount)
            elif kind >= 4:
                self.let_go(user, amount, for_good=kind == 4)


def run(seed: int, operations: int) -> Both:
    """Random operations, all checked, until all is let go."""
    rng = Random(seed)
    both = Both()
    for _ in range(operations):
        kind = rng.choice([0, 0, 1, 2, 2, 3, 3, 4, 5])
        both.do(kind, rng.randrange(40), rng.randrange(15), rng.choice([14, 14, rng.randrange(15)]))
        both.check()
    for user in list(both.users):
        both.let_go(user, 14, for_good=True)
    both.check()
    assert both.pool.num_free_blocks == USABLE
    return both


@pytest.mark.parametrize("seed", range(40))
def test_the_same_hits_and_evictions_as_block_by_block(seed: int) -> None:
    both = run(seed, 250)
    assert len(both.literal.evicted) > 5
    assert both.hits > 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_more_operations(first: int) -> None:
    for seed in range(first, first + 100):
        run(seed, 400)


def _newest_first(original: Any) -> Callable[..., None]:
    return lambda self, held: original(self, list(reversed(held)))


def _grows_behind_a_duplicate(original: Any) -> Callable[..., None]:
    def register(self: BlockPool, node: Node, lo: int, hi: int, held: list[Holding]) -> None:
        if held and held[-1][0].node is node and held[-1][0].hi == lo and held[-1][0].ref == 1:
            held[-1][0].hi = hi
        else:
            original(self, node, lo, hi, held)

    return register


def _ends_without_a_trace(original: Any) -> Callable[..., None]:
    def release_unfindable(self: BlockPool, n: int) -> None:
        self.n_blank += n

    return release_unfindable


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("release", _newest_first),
        ("register", _grows_behind_a_duplicate),
        ("release_unfindable", _ends_without_a_trace),
    ],
)
def test_planted_fault_is_caught(
    method: str, fault: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BlockPool, method, fault(getattr(BlockPool, method)))
    with pytest.raises(AssertionError):
        _run_all()


def _run_all() -> None:
    for seed in range(40):
        run(seed, 250)


# -- rules, one at a time ------------------------------------------------------------------------


def _hold(pool: BlockPool, chain: list[tuple[int, int]]) -> tuple[int, list[Holding]]:
    n = sum(blocks for _, blocks in chain)
    held = pool.match(chain, None, n)
    hits = sum(run.hi - lo for run, lo in held)
    pool.touch(held)
    pool.take(n - hits)
    start = 0
    for segment, blocks in chain:
        if start + blocks > hits:
            pool.register(pool.node(segment), max(hits - start, 0), blocks, held)
        start += blocks
    return hits, held


def _hits(pool: BlockPool, chain: list[tuple[int, int]], limit: int = 1000) -> int:
    return sum(run.hi - lo for run, lo in pool.match(chain, None, limit))


def test_one_block_is_vllms_null_block() -> None:
    assert BlockPool(100, True).usable_blocks == 99
    assert BlockPool(100, True).num_free_blocks == 99


def test_what_is_let_go_can_be_found_until_it_is_needed() -> None:
    pool = BlockPool(11, True)
    _, held = _hold(pool, [(1, 4)])
    pool.release(held)
    assert pool.num_free_blocks == 10
    assert _hits(pool, [(1, 4)]) == 4
    pool.take(6)  # blocks that hold nothing go first
    assert _hits(pool, [(1, 4)]) == 4
    pool.take(1)  # then the tail of what was let go
    assert _hits(pool, [(1, 4)]) == 3


def test_the_least_recently_used_goes_first_and_a_hit_saves() -> None:
    pool = BlockPool(9, True)
    for segment in (1, 2):
        pool.release(_hold(pool, [(segment, 4)])[1])
    pool.release(_hold(pool, [(1, 4)])[1])  # 1 is now the younger one
    pool.take(4)
    assert (_hits(pool, [(1, 4)]), _hits(pool, [(2, 4)])) == (4, 0)


def test_a_held_prefix_is_not_evicted_under_a_longer_one() -> None:
    pool = BlockPool(7, True)
    _, long = _hold(pool, [(1, 2), (2, 3)])
    hits, short = _hold(pool, [(1, 2)])
    assert hits == 2
    pool.release(long)
    assert pool.num_free_blocks == 4
    pool.take(4)
    assert _hits(pool, [(1, 2), (2, 3)]) == 2
    pool.release(short)
    assert pool.num_free_blocks == 2


def test_the_limit_cuts_a_hit_within_a_segment() -> None:
    pool = BlockPool(11, True)
    pool.release(_hold(pool, [(1, 5)])[1])
    assert [_hits(pool, [(1, 5)], limit) for limit in range(7)] == [0, 1, 2, 3, 4, 5, 5]
    assert _hits(pool, [(1, 5)]) == 5  # looking changed nothing


def test_nothing_is_found_past_a_gap() -> None:
    pool = BlockPool(11, True)
    pool.release(_hold(pool, [(1, 2), (2, 2)])[1])
    assert _hits(pool, [(3, 1), (2, 2)]) == 0


def test_changes_tell_what_is_cached_now() -> None:
    pool = BlockPool(6, True)
    pool.changes = []
    _, held = _hold(pool, [(1, 2), (2, 2)])
    assert pool.changes == [(1, 2), (2, 2)]
    pool.release(held)
    pool.changes.clear()
    pool.take(2)  # one that was never used, and the last of segment 2
    assert pool.changes == [(2, 1)]
    pool.take(3)
    assert pool.changes[-1] == (1, 0)
    cached: dict[int, int] = {}
    cached.update(pool.changes)
    assert cached == {1: 0, 2: 0}


def test_integrity_is_checked() -> None:
    pool = BlockPool(6, True)
    _, held = _hold(pool, [(1, 2)])
    pool.check_integrity(2)
    with pytest.raises(AssertionError):
        pool.check_integrity(1)
    pool.release(held)
    pool.check_integrity(0)
