"""Replays a measured run on one simulated engine."""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from fleetsim.calibration.parameters import HostWork, SchedulingMode
from fleetsim.calibration.profile import Profile
from fleetsim.sim.api_server import ApiServer
from fleetsim.sim.backtest.measured import Floats, Ints
from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.engine.engine import Engine
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.sim.engine.step_log import StepLog


class Load(Protocol):
    """What is asked of an engine; a measured run is one."""

    @property
    def at_client(self) -> bool:
        """Whether latencies are seen by an HTTP client, beyond the API server."""

    @property
    def arrival_s(self) -> Floats:
        """Of each request."""

    @property
    def prompt_tokens(self) -> Ints:
        """Of each request."""

    @property
    def output_tokens(self) -> Ints:
        """Of each request."""


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What the simulated engine made of a load's requests, in the load's order.

    Attributes:
        sent_s: when each was sent: at its arrival, or later where a slot had to be free first.
        ttft_s, e2e_s: from then to the first and the last token, with the API server's time
            where the load is seen by a client.
        engine_ttft_s: from the first schedule to the first token.
        itl_s, itl_tokens: distinct gaps between tokens, and how many tokens had each.
        preemptions: of all requests together.
        steps: that the engine ran.
    """

    sent_s: Floats
    ttft_s: Floats
    e2e_s: Floats
    engine_ttft_s: Floats
    itl_s: Floats
    itl_tokens: Ints
    preemptions: int
    steps: int


def scheduling_mode(settings: EngineSettings) -> SchedulingMode:
    """The profile's name of the engine's scheduling."""
    return "async" if settings.async_scheduling else "sync"


class EngineRun:
    """One simulated engine that a load is sent to; notes when each request got how far.

    Prompts share no prefix: a measured run does not say what its prompts held. Every request is
    one whose length the engine knows beforehand (``ignore_eos``, or its ``max_tokens`` reached).

    Args:
        load: the requests.
        profile: the step cost, and the API server's time.
        settings: the engine's.
        host: host work in place of the profile's.
    """

    def __init__(
        self, load: Load, profile: Profile, settings: EngineSettings, host: HostWork | None = None
    ) -> None:
        mode = scheduling_mode(settings)
        work = host if host is not None else profile.host_work_for(mode).work
        requests = len(load.arrival_s)
        self._prompt_tokens: list[int] = load.prompt_tokens.tolist()
        self._output_tokens: list[int] = load.output_tokens.tolist()
        self._sent_s, self._scheduled_s, self._first_s, self._end_s = np.full((4, requests), np.nan)
        self._preemptions = 0
        self._gaps: list[tuple[Floats, Ints]] = []
        log = StepLog(lambda durations_s, decodes: self._gaps.append((durations_s, decodes)))
        self.clock = Clock()
        cost = StepCost(profile.step_cost, work, mode)
        self._engine = Engine(self.clock, 0, settings, cost, self, log)
        api = profile.api_server
        self._api_server = (
            ApiServer(api, api.api_server_count, self._engine, cost) if load.at_client else None
        )

    def send(self, number: int, time_s: float) -> None:
        """The load's request of this number leaves the client at ``time_s``, now or later."""
        self._sent_s[number] = time_s
        if self._api_server is None:
            self._submit(number, time_s)
        else:
            # It takes requests in the order of their coming, and looks at the engine then.
            self.clock.at(time_s, rank(ARRIVAL, number), partial(self._enter, number))

    def _enter(self, number: int, alarm: int) -> None:
        """A request reaches the API server now."""
        server = self._api_server
        if server is not None:
            self._submit(number, server.take(self.clock.now, self._prompt_tokens[number]))

    def _submit(self, number: int, arrival_s: float) -> None:
        lengths = self._prompt_tokens[number], self._output_tokens[number]
        self._engine.submit(Sequence(number, arrival_s, *lengths, True, []), arrival_s)

    def result(self) -> Replay:
        """Run until nothing is left to do."""
        self.clock.run()
        self._engine.close()
        gaps = self._gaps or [(np.zeros(0), np.zeros(0, np.int64))]
        itl_s, itl_tokens = (np.concatenate(column) for column in zip(*gaps, strict=True))
        return Replay(
            sent_s=self._sent_s,
            ttft_s=self._first_s - self._sent_s,
            e2e_s=self._end_s - self._sent_s,
            engine_ttft_s=self._first_s - self._scheduled_s,
            itl_s=itl_s,
            itl_tokens=itl_tokens,
            preemptions=self._preemptions,
            steps=self._engine.steps,
        )

    def scheduled(self, sequence: Sequence, now_s: float) -> None:
        """From the engine."""
        if np.isnan(self._scheduled_s[sequence.request_id]):
            self._scheduled_s[sequence.request_id] = now_s

    def preempted(self, sequence: Sequence, now_s: float, last_token_s: float) -> None:
        """From the engine."""
        self._preemptions += 1

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        """From the engine."""
        if np.isnan(self._first_s[sequence.request_id]):
            self._first_s[sequence.request_id] = now_s

    def finished(self, sequence: Sequence, now_s: float) -> None:
        """From the engine."""
        self._end_s[sequence.request_id] = now_s

    def cache_changed(self) -> None:
        """From the engine; nobody looks at its cache."""


def replay(
    load: Load, profile: Profile, settings: EngineSettings, host: HostWork | None = None
) -> Replay:
    """Send the load's requests, at their times and with their lengths, to one engine.

    Arguments are those of :class:`EngineRun`.
    """
    run = EngineRun(load, profile, settings, host)
    for number, arrival_s in enumerate(load.arrival_s.tolist()):
        run.send(number, arrival_s)
    return run.result()
