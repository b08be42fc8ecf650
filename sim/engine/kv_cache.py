"""vLLM's paged KV cache with prefix caching, counted in runs of blocks instead of block by block.

Semantics: vLLM 0.32 (`vllm/v1/core/block_pool.py`, `kv_cache_manager.py`), one full-attention
group. What makes runs exact:

- Physical block numbers never matter. Free blocks without a hash stand at the front of vLLM's
  free queue and are used first, so a counter (`n_blank`) is enough for them.
- Hashed free blocks are a first-in first-out queue. A sequence frees its blocks from the tail, so
  a run of blocks of one prefix segment stands in the queue as one piece, tail first: eviction
  trims the tail, a hit takes a prefix of it, and a hit on a part splits it once.
- Blocks are registered when they are scheduled, duplicates are not merged, and a lookup takes the
  copy that was registered first.
"""

from __future__ import annotations


class Run:
    """Blocks [lo, hi) of one node that share a reference count, and a place in the free queue.

    When a run is cut, it keeps the upper part and `below` points to the lower one, so that those
    who hold it find the rest without having been told.
    """

    __slots__ = ("below", "hi", "lo", "next", "node", "prev", "ref")

    def __init__(self, node: Node, lo: int, hi: int, ref: int) -> None:
        self.node = node
        self.lo = lo
        self.hi = hi
        self.ref = ref
        self.below: Run | None = None
        self.prev: Run | None = None
        self.next: Run | None = None


class Node:
    """One segment of a prefix tree on one replica: which of its blocks are cached, and where.

    What is cached of a segment is always a prefix of it, since a sequence that holds a block
    holds all before it and frees them later.

    Attributes:
        key: the segment's id, or None for the tail that only one sequence owns.
        runs: copies in the order of their registration; they may overlap (duplicates).
    """

    __slots__ = ("key", "runs")

    def __init__(self, key: int | None) -> None:
        self.key = key
        self.runs: list[Run] = []

    def cached_blocks(self) -> int:
        """Blocks [0, n) can be hit."""
        runs = self.runs
        if len(runs) == 1:
            return runs[0].hi if runs[0].lo == 0 else 0
        reach = 0
        grown = True
        while grown:
            grown = False
            for run in runs:
                if run.lo <= reach < run.hi:
                    reach = run.hi
                    grown = True
        return reach


# Blocks that keep their place in the free queue, but that no request will ever ask for.
_UNFINDABLE = Node(None)


# What a sequence holds: (top run, lowest block), from the root of the prefix to its tail.
Holding = tuple[Run, int]


class BlockPool:
    """The KV blocks of one replica.

    Args:
        num_gpu_blocks: as vLLM counts them; one of them is its null block, so one less is usable.
        enable_caching: vLLM's `enable_prefix_caching`.
    """

    __slots__ = (
        "_head",
        "_tail",
        "changes",
        "enable_caching",
        "n_blank",
        "n_free_hashed",
        "nodes",
        "usable_blocks",
    )

    def __init__(self, num_gpu_blocks: int, enable_caching: bool) -> None:
        self.usable_blocks = num_gpu_blocks - 1
        self.enable_caching = enable_caching
        self.n_blank = self.usable_blocks
        self.n_free_hashed = 0
        self.nodes: dict[int, Node] = {}
        # (segment id, blocks of it now cached), in order: what vLLM's KV events tell. Kept only
        # when somebody listens.
        self.changes: list[tuple[int, int]] | None = None
        self._head: Run | None = None
        self._tail: Run | None = None

    @property
    def num_free_blocks(self) -> int:
        """Blocks that an allocation may use: never used, given back, or cached but not held."""
        return self.n_blank + self.n_free_hashed

    # -- allocation ------------------------------------------------------------------------

    def take(self, n: int) -> None:
        """Allocate n blocks (the caller has checked that they are free), evicting if need be."""
        if n <= self.n_blank:
            self.n_blank -= n
            return
        n -= self.n_blank
        self.n_blank = 0
        self.n_free_hashed -= n
        while n:
            run = self._head
            assert run is not None
            size = run.hi - run.lo
            if size <= n:
                n -= size
                self._unlink(run)
                self._forget(run)
            else:
                run.hi -= n
                n = 0
                if self.changes is not None:
                    self._note_change(run.node)

    # -- prefix cache ----------------------------------------------------------------------

    def match(self, chain: list[tuple[int, int]], tail: Node | None, limit: int) -> list[Holding]:
        """The longest cached prefix, at most `limit` blocks.

        Args:
            chain: (segment id, blocks) from the root.
            tail: the node of the sequence's own blocks behind the chain, if it has any.
            limit: most blocks to return; vLLM never hits the last token.

        Returns:
            Pieces (run, lo) that `touch` takes. The pool is not changed, apart from cutting runs
            at the edges of pieces, which changes no order.
        """
        pieces: list[Holding] = []
        for key, n_blocks in chain:
            if limit <= 0:
                return pieces
            node = self.nodes.get(key)
            if node is None:
                return pieces
            n = node.cached_blocks()
            if n > n_blocks:
                n = n_blocks
            if n > limit:
                n = limit
            self._pieces(node, n, pieces)
            if n < n_blocks:
                return pieces
            limit -= n
        if tail is not None and limit > 0:
            self._pieces(tail, min(tail.cached_blocks(), limit), pieces)
        return pieces

    def touch(self, pieces: list[Holding]) -> None:
        """Hold what `match` returned, before anything else is allocated."""
        for run, _ in pieces:
            if run.ref == 0:
                self._unlink(run)
                self.n_free_hashed -= run.hi - run.lo
            run.ref += 1

    def register(self, node: Node, lo: int, hi: int, held: list[Holding]) -> None:
        """Make the held blocks [lo, hi) of a node findable, and note them in `held`."""
        runs = node.runs
        if held:
            run = held[-1][0]
            # Growing the sequence's own run is exact only while no other copy was registered
            # later, since the copies of a block are looked up in that order.
            if run.node is node and run.hi == lo and run.ref == 1 and runs[-1] is run:
                run.hi = hi
                if self.changes is not None:
                    self._note_change(node)
                return
        run = Run(node, lo, hi, 1)
        runs.append(run)
        held.append((run, lo))
        if self.changes is not None:
            self._note_change(node)

    def node(self, key: int) -> Node:
        """The node of a segment, made when it is first registered."""
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = Node(key)
        return node

    def release(self, held: list[Holding]) -> None:
        """Let go of registered blocks, tail first; unheld ones join the end of the free queue."""
        for top, lo in reversed(held):
            run = top
            while True:
                run.ref -= 1
                if run.ref == 0:
                    self._append(run)
                    self.n_free_hashed += run.hi - run.lo
                if run.lo <= lo:
                    break
                assert run.below is not None
                run = run.below

    def release_unfindable(self, n: int) -> None:
        """Let go of n hashed blocks of a sequence that is gone, behind its shared prefix.

        Nobody will ask for them, but in the queue they stand where vLLM has them.
        """
        last = self._tail
        if last is not None and last.node is _UNFINDABLE:
            last.hi += n
        else:
            self._append(Run(_UNFINDABLE, 0, n, 0))
        self.n_free_hashed += n

    # -- inside ----------------------------------------------------------------------------

    def _pieces(self, node: Node, n: int, pieces: list[Holding]) -> None:
        """Append the runs that hold blocks [0, n) of a node: of each block the oldest copy."""
        runs = node.runs
        position = 0
        while position < n:
            end = n
            for run in runs:
                if run.lo <= position < run.hi:
                    break
                # An older copy that starts further up takes over from there.
                if position < run.lo < end:
                    end = run.lo
            else:
                raise AssertionError("a cached prefix has a gap")
            if end < run.hi:
                lower = self._cut(run, end)
                if lower.lo < position:
                    self._cut(lower, position)
                pieces.append((lower, position))
                position = end
            else:
                if run.lo < position:
                    self._cut(run, position)
                pieces.append((run, position))
                position = run.hi

    def _cut(self, run: Run, at: int) -> Run:
        """Cut a run; it keeps [at, hi), and the new lower part [lo, at) is returned."""
        lower = Run(run.node, run.lo, at, run.ref)
        lower.below = run.below
        run.below = lower
        run.lo = at
        runs = run.node.runs
        runs.insert(runs.index(run), lower)
        if run.ref == 0:
            # The tail is evicted first, so the lower part stands right behind the upper one.
            lower.prev = run
            lower.next = run.next
            if run.next is None:
                self._tail = lower
            else:
                run.next.prev = lower
            run.next = lower
        return lower

    def _forget(self, run: Run) -> None:
        node = run.node
        if node is _UNFINDABLE:
            return
        node.runs.remove(run)
        if self.changes is not None:
            self._note_change(node)
        if not node.runs and node.key is not None:
            del self.nodes[node.key]

    def _note_change(self, node: Node) -> None:
        if self.changes is not None and node.key is not None:
            self.changes.append((node.key, node.cached_blocks()))

    def _append(self, run: Run) -> None:
        run.prev = self._tail
        run.next = None
        if self._tail is None:
            self._head = run
        else:
            self._tail.next = run
        self._tail = run

    def _unlink(self, run: Run) -> None:
        if run.prev is None:
            self._head = run.next
        else:
            run.prev.next = run.next
        if run.next is None:
            self._tail = run.prev
        else:
            run.next.prev = run.prev
        run.prev = run.next = None

    def check_integrity(self, held_blocks: int) -> None:
        """Raise AssertionError unless every block is either free or held, and counted once.

        Args:
            held_blocks: distinct blocks that sequences hold, counted by the caller.
        """
        size, run = 0, self._head
        previous = None
        while run is not None:
            assert run.ref == 0
            assert run.lo < run.hi
            assert run.prev is previous
            size += run.hi - run.lo
            previous, run = run, run.next
        assert self._tail is previous
        assert size == self.n_free_hashed
        assert self.n_blank >= 0
        assert self.n_blank + size + held_blocks == self.usable_blocks
        for key, node in self.nodes.items():
            assert node.key == key
            assert node.runs
