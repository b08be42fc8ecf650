"""LoRA slots: how many different adapters may be in the running batch (vLLM's `max_loras`).

Semantics: `scheduled_loras` in vLLM's scheduler. vLLM gathers the adapters of the running requests
anew in each step, and walks the queue: whoever would bring one adapter too many is passed over, and
stands in the next step where it stood in this one. Here the adapters are counted as requests come
and go, and the queue is a line for each adapter, so that the first who may go in is found without a
look at those who may not.

Which of the running count depends on the version. 0.32 looks at those that the step has given a
token: whenever budget is left for somebody who waits, that is all but the ones whose last token is
under way (async scheduling). 0.33 looks at all that hold a place.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from fleetsim.sim.engine.sequence import WAITING, Sequence

# (priority, arrival, number, who): lower goes first. FCFS looks at the number only.
_Entry = tuple[int, float, int, Sequence]


class LoraSlots:
    """The adapters of the running requests, and the requests that wait, by adapter.

    Args:
        max_loras: most different ones at a time.
        until_the_end: whether a request keeps its slot while its last token is under way (0.33).
        by_priority: order of the queue; otherwise first come, first served.

    Attributes:
        users: how many running requests an adapter has, if it has any; "" (none) is no adapter.
        lines: those that wait for each adapter, a heap; may hold dead ones.
    """

    __slots__ = ("_back", "_front", "by_priority", "lines", "max_loras", "until_the_end", "users")

    def __init__(self, max_loras: int, until_the_end: bool, by_priority: bool) -> None:
        self.max_loras = max_loras
        self.until_the_end = until_the_end
        self.by_priority = by_priority
        self.users: dict[str, int] = {}
        self.lines: dict[str, list[_Entry]] = {}
        self._front = self._back = 0

    # -- those that run --------------------------------------------------------------------

    def take(self, adapter: str) -> None:
        """A request joins those that run."""
        if adapter:
            self.users[adapter] = self.users.get(adapter, 0) + 1

    def leave(self, adapter: str) -> None:
        """One of them no longer counts."""
        if adapter:
            left = self.users[adapter] - 1
            if left:
                self.users[adapter] = left
            else:
                del self.users[adapter]

    # -- those that wait -------------------------------------------------------------------

    def add(self, sequence: Sequence) -> None:
        """A request comes to the end of the queue (FCFS), or to its place (priority)."""
        self._back += 1
        self._insert(sequence, self._back)

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request goes to the front (FCFS), or to its place (priority)."""
        self._front -= 1
        self._insert(sequence, self._front)

    def _insert(self, sequence: Sequence, number: int) -> None:
        if self.by_priority:
            entry = (sequence.priority, sequence.arrival_s, sequence.request_id, sequence)
        else:
            entry = (0, 0.0, number, sequence)
        line = self.lines.get(sequence.adapter)
        if line is None:
            line = self.lines[sequence.adapter] = []
        heappush(line, entry)

    def head(self) -> Sequence | None:
        """The first in the queue who may go in; None if all who wait do so for a slot."""
        lines = self.lines
        adapters: Iterable[str] = ("", *self.users)
        if len(self.users) < self.max_loras:
            adapters = list(lines)
        first: _Entry | None = None
        for adapter in adapters:
            line = lines.get(adapter)
            if line is None:
                continue
            while line and line[0][3].state != WAITING:
                heappop(line)
            if not line:
                del lines[adapter]
            elif first is None or line[0] < first:
                first = line[0]
        return None if first is None else first[3]

    def pop(self, head: Sequence) -> None:
        """Take the head off the queue."""
        heappop(self.lines[head.adapter])

    def queue(self) -> list[Sequence]:
        """All who wait, in order."""
        entries = [entry for line in self.lines.values() for entry in line]
        return [entry[3] for entry in sorted(entries) if entry[3].state == WAITING]
