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


class Alarm:
    """A callback at a time; the least that SimPy's loop asks of an event."""

    __slots__ = ("callbacks",)

    _ok = True

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self.callbacks: list[Callable[[Any], None]] | None = [callback]


class Clock(simpy.Environment):
    """SimPy environment with absolute, totally ordered alarms.

    Ordinary SimPy processes work in it too; their events come before the alarms of the same
    instant, in SimPy's own order.
    """

    stopped = False

    def stop(self) -> None:
        """No further event is run."""
        self.stopped = True

    def run_events(self, most: int) -> bool:
        """Run up to `most` events: what SimPy's `step` does, without a call per event.

        Returns:
            False once there is none left, or `stop` was called.
        """
        queue = self._queue
        for _ in range(most):
            if self.stopped or not queue:
                return False
            self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
        return True

    def at(self, time_s: float, rank: int, callback: Callable[[Any], None]) -> Alarm:
        """Call `callback` at `time_s` (not before now), after everything of a lower rank.

        Args:
            time_s: absolute simulated time in seconds.
            rank: from `rank`.
            callback: called with the alarm.

        Returns:
            The alarm, for a caller who wants to tell a stale one from the one it last set:
            that is cheaper than taking an event out of the queue.
        """
        alarm = Alarm(callback)
        heappush(self._queue, (time_s, rank, next(self._eid), alarm))  # type: ignore[misc]
        return alarm
