"""A load of which no more than so many requests are in flight: one ends, the next is sent.

So do ``vllm bench serve --max-concurrency`` and its relatives: request k leaves at its own arrival
or, later, when a slot is free; slots go to requests in their order.
"""

from dataclasses import dataclass

import numpy as np

from fleetsim.calibration.parameters import HostWork
from fleetsim.calibration.profile import Profile
from fleetsim.sim.backtest.measured import Floats, Ints
from fleetsim.sim.backtest.replay import EngineRun, Load, Replay
from fleetsim.sim.clock import ARRIVAL, rank
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.traces.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """A load all of which is there from the start, seen by a client or at the engine."""

    prompt_tokens: Ints
    output_tokens: Ints
    at_client: bool

    @property
    def arrival_s(self) -> Floats:
        """All 0."""
        return np.zeros(len(self.prompt_tokens))


class _ClosedLoop(EngineRun):
    """Sends the next request when a slot is free."""

    def __init__(
        self,
        load: Load,
        concurrency: int,
        profile: Profile,
        settings: EngineSettings,
        host: HostWork | None,
    ) -> None:
        super().__init__(load, profile, settings, host)
        self._arrival_s: list[float] = load.arrival_s.tolist()
        self._next = 0
        for number in range(min(concurrency, len(self._arrival_s))):
            self._take_slot(number)

    def _take_slot(self, number: int) -> None:
        self._next = number + 1
        self.send(number, max(self._arrival_s[number], self.clock.now))

    def finished(self, sequence: Sequence, now_s: float) -> None:
        super().finished(sequence, now_s)
        # Behind the step's end, of which this is a part, and before the next schedule.
        self.clock.at(now_s, rank(ARRIVAL, sequence.request_id), self._on_free_slot)

    def _on_free_slot(self, alarm: int) -> None:
        if self._next < len(self._arrival_s):
            self._take_slot(self._next)


def replay_closed_loop(
    load: Load,
    concurrency: int,
    profile: Profile,
    settings: EngineSettings,
    host: HostWork | None = None,
) -> Replay:
    """Send the load's requests to one engine, at most ``concurrency`` at a time.

    Args:
        load: requests; the k-th is sent at its arrival or when a slot is free, whichever is
            later. Arrivals must not fall.
        concurrency: requests in flight at most, from when they are sent to their last token.
        profile: the step cost, and the API server's time.
        settings: the engine's.
        host: host work in place of the profile's.

    Raises:
        InputError: fewer than 1 in flight, or arrivals that fall.
    """
    if concurrency < 1:
        raise InputError(f"concurrency: must be at least 1, got {concurrency}")
    if (np.diff(load.arrival_s) < 0).any():
        raise InputError("closed loop: arrivals fall; sort the requests by arrival")
    return _ClosedLoop(load, concurrency, profile, settings, host).result()
