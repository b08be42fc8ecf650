"""The clients: they send requests and wait for the answers, or give up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.request import Journey

_ARRIVAL = rank(ARRIVAL, 0)


class OpenLoop:
    """Requests come when the trace says, whether or not earlier ones have ended.

    Args:
        clock: the simulation's clock.
        journeys: the workload, in order of arrival.
        network_delay_s: from client to gateway, and back.
        send: takes a request at the moment in which it reaches the gateway.

    Attributes:
        exhausted: all have been sent.
        last_s: when the last one so far was sent.
    """

    __slots__ = ("_clock", "_delay_s", "_journeys", "_next", "_send", "exhausted", "last_s")

    def __init__(
        self,
        clock: Clock,
        journeys: Iterator[Journey],
        network_delay_s: float,
        send: Callable[[Journey], None],
    ) -> None:
        self._clock = clock
        self._journeys = journeys
        self._delay_s = network_delay_s
        self._send = send
        self._next: Journey | None = None
        self.exhausted = False
        self.last_s = 0.0

    def start(self) -> None:
        """Set the first alarm."""
        self._advance()

    def ended(self, journey: Journey) -> None:
        """An open loop does not care."""

    def _advance(self) -> None:
        journey = self._next = next(self._journeys, None)
        if journey is None:
            self.exhausted = True
        else:
            self._clock.at(journey.client_sent_s + self._delay_s, _ARRIVAL, self._arrive)

    def _arrive(self, _alarm: Any) -> None:
        journey = self._next
        assert journey is not None
        self.last_s = journey.client_sent_s
        # The next alarm first: the engines then see whether something else happens now.
        self._advance()
        self._send(journey)


class ClosedLoop:
    """A fixed number of requests in flight: the next one is sent when one ends.

    Arguments and attributes are those of `OpenLoop`; `concurrency` requests start at 0.
    """

    __slots__ = (
        "_clock",
        "_concurrency",
        "_delay_s",
        "_journeys",
        "_on_the_way",
        "_send",
        "_spent",
        "last_s",
    )

    def __init__(
        self,
        clock: Clock,
        journeys: Iterator[Journey],
        network_delay_s: float,
        send: Callable[[Journey], None],
        concurrency: int,
    ) -> None:
        self._clock = clock
        self._journeys = journeys
        self._delay_s = network_delay_s
        self._send = send
        self._concurrency = concurrency
        self._on_the_way = 0
        self._spent = False
        self.last_s = 0.0

    def start(self) -> None:
        """Send the first requests."""
        for _ in range(self._concurrency):
            self._issue(0.0)

    def ended(self, journey: Journey) -> None:
        """One ended: its client sends the next when it has the answer."""
        self._issue(journey.ended_s)

    @property
    def exhausted(self) -> bool:
        """All have been sent, and reached the gateway."""
        return self._spent and not self._on_the_way

    def _issue(self, now_s: float) -> None:
        journey = next(self._journeys, None)
        if journey is None:
            self._spent = True
            return
        request = journey.request
        request.arrival_s = journey.client_sent_s = now_s
        self._on_the_way += 1
        self._clock.at(
            now_s + self._delay_s,
            rank(ARRIVAL, request.request_id + 1),
            partial(self._arrive, journey),
        )

    def _arrive(self, journey: Journey, _alarm: Any) -> None:
        self._on_the_way -= 1
        self.last_s = journey.client_sent_s
        self._send(journey)


class Patience:
    """Clients give up a fixed time after they sent their request.

    One alarm for all, since deadlines come in the order in which requests were sent.

    Args:
        clock: the simulation's clock.
        timeout_s: how long they wait.
        give_up: takes a journey whose deadline has come before its end.
    """

    __slots__ = ("_armed", "_clock", "_give_up", "_timeout_s", "_waiting")

    def __init__(self, clock: Clock, timeout_s: float, give_up: Callable[[Journey], None]) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._give_up = give_up
        self._waiting: deque[Journey] = deque()
        self._armed = False

    def deadline_s(self, journey: Journey) -> float:
        """When its client gives up."""
        return journey.client_sent_s + self._timeout_s

    def watch(self, journey: Journey) -> None:
        """A request was sent."""
        self._waiting.append(journey)
        if not self._armed:
            self._arm()

    def _arm(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].outcome:
            waiting.popleft()
        self._armed = bool(waiting)
        if waiting:
            # A closed loop may watch a request whose deadline is not behind all others.
            due_s = max(self.deadline_s(waiting[0]), self._clock.now)
            self._clock.at(due_s, _ARRIVAL, self._due)

    def _due(self, _alarm: Any) -> None:
        journey = self._waiting.popleft()
        if not journey.outcome:
            self._give_up(journey)
        self._arm()
