"""The simulated clock: SimPy's event loop with one stated order for what happens at one instant.

Stock SimPy breaks ties by the order of insertion, and computes an event's time as now + delay,
which is not the time one asked for (floating point). A simulator whose results must not depend
on accidents needs both fixed: events here have absolute times, and at one instant they run by
class, then by component number.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy

# Order at one instant. A request that arrives exactly when a step ends is in the next schedule.
READY = 1
STEP_END = 2
ARRIVAL = 3
SCHEDULE = 4
SCRAPE = 5
CONTROL = 6

_COMPONENTS = 1 << 32


def rank(order: int, component: int) -> int:
    """Where an event stands among those of its instant.

    Args:
        order: one of READY, STEP_END, ARRIVAL, SCHEDULE, SCRAPE, CONTROL.
        component: number of the replica, request or loop; breaks ties within an order.
    """
    return order * _COMPONENTS + component


class Clock(simpy.Environment):
    """SimPy environment with absolute, totally ordered alarms.

    An alarm is a callback in SimPy's queue, at a place where SimPy has an event. Ordinary SimPy
    processes work too; their events come before the alarms of the same instant, in SimPy's own
    order, since SimPy's priorities are lower than any rank.

    Attributes:
        now: simulated time in seconds.
        stopped: whether `stop` was called.
    """

    # SimPy keeps the time as `_now` and shows it as a property. Here it is the other way round:
    # everybody asks for it all the time.
    now: float = 0.0
    stopped = False

    @property
    def _now(self) -> float:
        return self.now

    @_now.setter
    def _now(self, time_s: float) -> None:
        self.now = time_s

    def stop(self) -> None:
        """No further event is run."""
        self.stopped = True

    def step(self) -> None:
        """Run the next event, as SimPy's loop asks for it."""
        if self._queue and self._queue[0][1] >= _COMPONENTS:
            self.run_events(1)
        else:
            super().step()

    def run_events(self, most: int) -> bool:
        """Run up to `most` events, without a call per event where they are alarms.

        Returns:
            False once there is none left, or `stop` was called.
        """
        queue: list[tuple[float, int, int, Any]] = self._queue  # type: ignore[assignment]
        pop, lowest = heappop, _COMPONENTS
        for _ in range(most):
            if self.stopped or not queue:
                return False
            event = pop(queue)
            if event[1] < lowest:
                heappush(queue, event)
                super().step()
                continue
            self.now, _, number, callback = event
            callback(number)
        return True

    def at(self, time_s: float, rank: int, callback: Callable[[int], None]) -> int:
        """Call `callback` at `time_s` (not before now), after everything of a lower rank.

        Args:
            time_s: absolute simulated time in seconds.
            rank: from `rank`.
            callback: called with the alarm's number.

        Returns:
            The alarm's number, for a caller who wants to tell a stale one from the one it last
            set: that is cheaper than taking an alarm out of the queue.
        """
        number = next(self._eid)
        heappush(self._queue, (time_s, rank, number, callback))  # type: ignore[misc]
        return number
