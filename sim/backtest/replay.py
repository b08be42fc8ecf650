"""Replays a measured run on one simulated engine."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetsim.calibration.parameters import HostWork, SchedulingMode
from fleetsim.calibration.profile import Profile
from fleetsim.sim.backtest.measured import Floats, MeasuredRun
from fleetsim.sim.clock import Clock
from fleetsim.sim.engine.engine import Engine
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.sim.engine.step_log import StepLog


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What the simulated engine made of a run's requests, in the run's order.

    Attributes:
        ttft_s, e2e_s: from arrival to the first and the last token, with the API server's time
            where the run was measured at a client.
        engine_ttft_s: from the first schedule to the first token.
        itl_s, itl_tokens: distinct gaps between tokens, and how many tokens had each.
        preemptions: of all requests together.
        steps: that the engine ran.
    """

    ttft_s: Floats
    e2e_s: Floats
    engine_ttft_s: Floats
    itl_s: Floats
    itl_tokens: npt.NDArray[np.int64]
    preemptions: int
    steps: int


class _Stamps:
    """Notes when each request was first scheduled, gave its first token and ended."""

    def __init__(self, requests: int) -> None:
        self.scheduled_s = np.full(requests, np.nan)
        self.first_s = np.full(requests, np.nan)
        self.end_s = np.full(requests, np.nan)
        self.preemptions = 0

    def scheduled(self, sequence: Sequence, now_s: float) -> None:
        if np.isnan(self.scheduled_s[sequence.request_id]):
            self.scheduled_s[sequence.request_id] = now_s

    def preempted(self, sequence: Sequence, now_s: float, last_token_s: float) -> None:
        self.preemptions += 1

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        if np.isnan(self.first_s[sequence.request_id]):
            self.first_s[sequence.request_id] = now_s

    def finished(self, sequence: Sequence, now_s: float) -> None:
        self.end_s[sequence.request_id] = now_s

    def cache_changed(self) -> None:
        pass


def scheduling_mode(settings: EngineSettings) -> SchedulingMode:
    """The profile's name of the engine's scheduling."""
    return "async" if settings.async_scheduling else "sync"


def replay(
    run: MeasuredRun,
    profile: Profile,
    settings: EngineSettings,
    host: HostWork | None = None,
) -> Replay:
    """Send the run's requests, at their times and with their lengths, to one engine.

    Prompts share no prefix: a measured run does not say what its prompts held. Every request is
    one whose length the engine knows beforehand (``ignore_eos``, or its ``max_tokens`` reached).

    Args:
        run: arrivals and lengths.
        profile: the step cost, and the API server's time.
        settings: the engine's.
        host: host work in place of the profile's.
    """
    mode = scheduling_mode(settings)
    work = host if host is not None else profile.host_work_for(mode).work
    cost = StepCost(profile.step_cost, work, mode)
    api = profile.api_server
    delay_s = np.zeros(len(run))
    if run.at_client:
        delay_s += api.latency_s + api.per_prompt_token_s * run.prompt_tokens
    clock, stamps = Clock(), _Stamps(len(run))
    gaps: list[tuple[Floats, npt.NDArray[np.int64]]] = []
    log = StepLog(lambda durations_s, decodes: gaps.append((durations_s, decodes)))
    engine = Engine(clock, 0, settings, cost, stamps, log)
    arrivals = (run.arrival_s + delay_s).tolist()
    lengths = zip(run.prompt_tokens.tolist(), run.output_tokens.tolist(), strict=True)
    for number, (prompt, output) in enumerate(lengths):
        engine.submit(
            Sequence(number, arrivals[number], prompt, output, True, []), arrivals[number]
        )
    clock.run()
    engine.close()
    steps, counts = (
        (np.concatenate(column) for column in zip(*gaps, strict=True))
        if gaps
        else (
            np.zeros(0),
            np.zeros(0, np.int64),
        )
    )
    return Replay(
        ttft_s=stamps.first_s - run.arrival_s,
        e2e_s=stamps.end_s - run.arrival_s,
        engine_ttft_s=stamps.first_s - stamps.scheduled_s,
        itl_s=steps,
        itl_tokens=counts,
        preemptions=stamps.preemptions,
        steps=engine.steps,
    )
