"""The paged KV pool of the reference: every block an object, every hash a dict entry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


class Block:
    """One physical block."""

    __slots__ = ("key", "number", "references")

    def __init__(self, number: int) -> None:
        self.number = number
        self.references = 0
        self.key: int | None = None  # set once its content can be found by others


class KeyTable:
    """Gives equal block contents equal small numbers, so that chains need not be hashed again."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, tuple[int, ...], int], int] = {}

    def number(self, parent: int, tokens: tuple[int, ...], adapter: int) -> int:
        """The number of the block that holds `tokens` behind block `parent` (0: the first).

        The same tokens under another LoRA adapter have another KV.
        """
        return self._numbers.setdefault((parent, tokens, adapter), len(self._numbers) + 1)


class BlockPool:
    """Free blocks in order of reuse, and the findable blocks by content."""

    def __init__(self, usable_blocks: int) -> None:
        # front: next to be given out
        self._free: OrderedDict[int, Block] = OrderedDict(
            (number, Block(number)) for number in range(usable_blocks)
        )
        # equal contents are not merged: the block registered first is the one that is hit
        self._by_key: dict[int, dict[int, Block]] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that can be given out; findable ones among them."""
        return len(self._free)

    def find(self, key: int) -> Block | None:
        """The block to share for this content, if one is still held or not yet reused."""
        return next(iter(self._by_key.get(key, {}).values()), None)

    def take(self, count: int) -> list[Block]:
        """Give out `count` free blocks; what they held can no longer be found."""
        taken = []
        for _ in range(count):
            _, block = self._free.popitem(last=False)
            self._forget(block)
            block.references = 1
            taken.append(block)
        return taken

    def share(self, blocks: Iterable[Block]) -> None:
        """Hold these findable blocks once more."""
        for block in blocks:
            if block.references == 0:
                del self._free[block.number]
            block.references += 1

    def register(self, block: Block, key: int) -> None:
        """Make a full block findable."""
        block.key = key
        self._by_key.setdefault(key, {})[block.number] = block

    def release(self, blocks: list[Block]) -> None:
        """Let go of one sequence's blocks, last block first.

        Blocks nobody can find are reused next, the last block first of all; findable ones go
        behind all other free blocks, the last block first, so a prefix outlives its end.
        """
        blank: list[Block] = []
        findable: list[Block] = []
        for block in reversed(blocks):
            block.references -= 1
            if block.references == 0:
                (blank if block.key is None else findable).append(block)
        for block in findable:
            self._free[block.number] = block
        for block in reversed(blank):
            self._free[block.number] = block
            self._free.move_to_end(block.number, last=False)

    def _forget(self, block: Block) -> None:
        if block.key is None:
            return
        same = self._by_key[block.key]
        del same[block.number]
        if not same:
            del self._by_key[block.key]
        block.key = None
