"""Clients in sessions: a turn comes some time after the answer to the one before."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.request import COMPLETED, Journey
from fleetsim.traces import Trace


class Turns:
    """Which requests of a trace wait for which answer.

    Args:
        trace: with `parent` and `think_s`.

    Attributes:
        waiting: how many wait for an answer.
        roots: the others, which come at their own time, in order of arrival.
    """

    __slots__ = ("_arrival_s", "_begins", "_rows", "_think_s", "roots", "waiting")

    def __init__(self, trace: Trace) -> None:
        assert trace.parent is not None
        assert trace.think_s is not None
        waits = ~np.isnan(trace.think_s)
        self.roots = array("q", np.flatnonzero(~waits).tobytes())
        rows = np.flatnonzero(waits)
        self.waiting = len(rows)
        parents = trace.parent[rows]
        order = np.argsort(parents, kind="stable")
        begins = np.searchsorted(parents[order], np.arange(len(trace) + 1))
        # Of request i wait `_rows[_begins[i]:_begins[i + 1]]`.
        self._rows = array("q", rows[order].tobytes())
        self._begins = array("q", begins.astype(np.int64).tobytes())
        self._arrival_s = trace.arrival_s
        self._think_s = trace.think_s

    def after(self, row: int) -> list[int]:
        """The requests that wait for the answer to this one, in order."""
        return list(self._rows[self._begins[row] : self._begins[row + 1]])

    def after_all(self, row: int) -> int:
        """How many wait for it, or for one that does, and so on."""
        count, stack = 0, self.after(row)
        while stack:
            count += 1
            stack += self.after(stack.pop())
        return count

    def arrival_s(self, row: int) -> float:
        """When a request comes that waits for none."""
        return float(self._arrival_s[row])

    def think_s(self, row: int) -> float:
        """From the answer that it waits for to the request."""
        return float(self._think_s[row])


class Sessions:
    """A turn is sent `think_s` after its client had the whole answer that it waits for.

    Requests that wait for none come at their time, as in an open loop. A turn behind a request
    that was not answered (rejected, failed, cancelled) is never sent, and is counted.

    Args:
        clock: the simulation's clock.
        turns: who waits for whom.
        journey: makes the journey of a request, by its number; called when it is sent.
        network_delay_s: from client to gateway, and back.
        send: takes a request at the moment in which it reaches the gateway.

    Attributes:
        last_s: when the last one so far was sent.
    """

    __slots__ = (
        "_clock",
        "_delay_s",
        "_journey",
        "_never",
        "_next_root",
        "_send",
        "_sent_turns",
        "_thinking",
        "_turns",
        "last_s",
    )

    def __init__(
        self,
        clock: Clock,
        turns: Turns,
        journey: Callable[[int], Journey],
        network_delay_s: float,
        send: Callable[[Journey], None],
    ) -> None:
        self._clock = clock
        self._turns = turns
        self._journey = journey
        self._delay_s = network_delay_s
        self._send = send
        self._next_root = 0
        self._thinking = 0
        self._sent_turns = 0
        self._never: dict[str, int] = {}
        self.last_s = 0.0

    def start(self) -> None:
        """Set the first alarm."""
        self._expect_root()

    @property
    def exhausted(self) -> bool:
        """All have been sent whose answer has come, and reached the gateway."""
        return self._next_root > len(self._turns.roots) and not self._thinking

    def ended(self, journey: Journey) -> None:
        """One ended; those who waited for its answer think, or give up."""
        row = journey.request.request_id
        turns = self._turns.after(row)
        if not turns:
            return
        if journey.outcome != COMPLETED:
            reason = f"parent_{journey.outcome}"
            self._never[reason] = self._never.get(reason, 0) + self._turns.after_all(row)
            return
        for turn in turns:
            self._thinking += 1
            sent_s = journey.ended_s + self._turns.think_s(turn)
            self._expect(turn, sent_s, partial(self._turn_arrives, turn, sent_s))

    def turns_not_issued(self) -> dict[str, int]:
        """Turns that were never sent, by reason; called at the end of the run."""
        counts = dict(self._never)
        left = self._turns.waiting - self._sent_turns - sum(counts.values())
        if left:
            counts["run_ended"] = left
        return counts

    def _expect_root(self) -> None:
        roots = self._turns.roots
        place = self._next_root
        self._next_root = place + 1
        if place < len(roots):
            row = roots[place]
            self._expect(row, self._turns.arrival_s(row), self._root_arrives)

    def _expect(self, row: int, sent_s: float, arrives: Callable[[Any], None]) -> None:
        self._clock.at(sent_s + self._delay_s, rank(ARRIVAL, row + 1), arrives)

    def _root_arrives(self, _alarm: Any) -> None:
        row = self._turns.roots[self._next_root - 1]
        # The next alarm first: the engines then see whether something else happens now.
        self._expect_root()
        self._arrive(row, self._turns.arrival_s(row))

    def _turn_arrives(self, row: int, sent_s: float, _alarm: Any) -> None:
        self._thinking -= 1
        self._sent_turns += 1
        self._arrive(row, sent_s)

    def _arrive(self, row: int, sent_s: float) -> None:
        journey = self._journey(row)
        journey.request.arrival_s = journey.client_sent_s = sent_s
        self.last_s = sent_s
        self._send(journey)
