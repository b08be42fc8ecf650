"""What the router believes each replica's prefix cache to hold.

The choice matters: two-choices routing with exact knowledge and with none are two policies.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Protocol

from fleetsim.policies.base import RequestView
from fleetsim.sim.clock import Clock


class PrefixKnowledge(Protocol):
    """The router's belief about one replica's cache."""

    def cached_tokens(self, request: RequestView) -> int:
        """Prompt tokens from the start that are believed to be cached."""


class NoKnowledge:
    """Nothing is known."""

    __slots__ = ()

    def cached_tokens(self, request: RequestView) -> int:
        """Zero."""
        return 0


class OwnHistory:
    """The prefixes that the router itself sent there, the least recently used forgotten.

    As the EPP's approximate prefix cache does, it assumes that a replica keeps what it was sent,
    up to its capacity.

    Args:
        segment_tokens: tokens of each segment, by id.
        capacity_tokens: KV capacity of the replica.
    """

    __slots__ = ("_capacity_tokens", "_held_tokens", "_recent", "_segment_tokens")

    def __init__(self, segment_tokens: list[int], capacity_tokens: int) -> None:
        self._segment_tokens = segment_tokens
        self._capacity_tokens = capacity_tokens
        self._held_tokens = 0
        self._recent: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, request: RequestView) -> int:
        """Tokens of the leading segments that are remembered."""
        tokens = 0
        recent = self._recent
        for segment in request.prefix:
            if segment not in recent:
                break
            tokens += self._segment_tokens[segment]
        return tokens

    def dispatched(self, request: RequestView) -> None:
        """The router sends a request there: remember its prefix.

        The root becomes the most recent, since it is evicted last.
        """
        recent = self._recent
        for segment in reversed(request.prefix):
            if segment in recent:
                recent.move_to_end(segment)
            else:
                recent[segment] = None
                self._held_tokens += self._segment_tokens[segment]
        while self._held_tokens > self._capacity_tokens:
            segment, _ = recent.popitem(last=False)
            self._held_tokens -= self._segment_tokens[segment]


class CacheEvents:
    """The cache's own contents, as vLLM's KV events tell them, `delay_s` late.

    Args:
        clock: tells now.
        block_size: tokens of a block.
        segment_blocks: whole blocks of each segment, by id.
        delay_s: from a change in the cache to the router's knowing it.

    Attributes:
        changes: (segment, blocks cached), for the block pool to append to; taken from here.
    """

    __slots__ = (
        "_block_size",
        "_clock",
        "_delay_s",
        "_known",
        "_pending",
        "_segment_blocks",
        "changes",
    )

    def __init__(
        self,
        clock: Clock,
        block_size: int,
        segment_blocks: list[int],
        delay_s: float,
    ) -> None:
        self._clock = clock
        self._block_size = block_size
        self._segment_blocks = segment_blocks
        self._delay_s = delay_s
        self.changes: list[tuple[int, int]] = []
        self._known: dict[int, int] = {}
        self._pending: deque[tuple[float, int, int]] = deque()

    def stepped(self) -> None:
        """The engine has ended a step: what changed since the last one is published now."""
        changes = self.changes
        if changes:
            due_s = self._clock.now + self._delay_s
            self._pending.extend((due_s, segment, blocks) for segment, blocks in changes)
            changes.clear()

    def cached_tokens(self, request: RequestView) -> int:
        """Tokens of the leading blocks that the events received by now say are there."""
        pending, known, now = self._pending, self._known, self._clock.now
        while pending and pending[0][0] <= now:
            _, segment, blocks = pending.popleft()
            if blocks:
                known[segment] = blocks
            else:
                known.pop(segment, None)
        blocks = 0
        for segment in request.prefix:
            whole = self._segment_blocks[segment]
            if whole:  # a segment shorter than a block has none of its own
                found = known.get(segment, 0)
                blocks += found
                if found < whole:
                    break
        return blocks * self._block_size
