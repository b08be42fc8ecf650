"""Results of ``vllm bench serve`` that belong together: one model and engine at several rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np

from fleetsim.calibration.parameters import HostWork
from fleetsim.calibration.profile import Profile
from fleetsim.sim.backtest.closed_loop import replay_closed_loop
from fleetsim.sim.backtest.measured import Floats, Ints, MeasuredRun, read_run
from fleetsim.sim.backtest.replay import Replay, replay
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.traces.errors import InputError

MIN_REQUESTS = 20
_LARGEST_FAILED_SHARE = 0.1
_KEEP_ONE_OUT_FROM = 3


@dataclass(frozen=True, slots=True)
class BenchRuns:
    """The runs, by rising rate.

    Attributes:
        fitted: those to fit to.
        held_out: the one in the middle, which the fit must not see; None of fewer than three.
    """

    fitted: tuple[MeasuredRun, ...]
    held_out: MeasuredRun | None

    @property
    def all(self) -> tuple[MeasuredRun, ...]:
        """All of them, by rising rate."""
        held_out = () if self.held_out is None else (self.held_out,)
        return tuple(sorted((*self.fitted, *held_out), key=_rank))


@dataclass(frozen=True, slots=True, eq=False)
class _ClientLoad:
    """What the client had to send, before it waited for a slot."""

    at_client: bool
    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints


def read_bench_runs(paths: Sequence[Path]) -> BenchRuns:
    """Reads them, and says why they cannot be used together.

    Raises:
        InputError: a file is no bench result or damaged; the same run twice; different models; too
            few requests, too many that failed, or none of two tokens.
    """
    runs = [read_run(path) for path in paths]
    for run in runs:
        _check(run)
    for number, run in enumerate(runs):
        for other in runs[:number]:
            if run.origin.model != other.origin.model:
                raise InputError(
                    f"{run.path}: model_id is {run.origin.model!r}, but {other.origin.model!r} in "
                    f"{other.path}; a fit is of one model"
                )
            if len(run) == len(other) and np.array_equal(run.ttft_s, other.ttft_s):
                raise InputError(f"{run.path}: is the same run as {other.path}")
    runs.sort(key=_rank)
    if len(runs) < _KEEP_ONE_OUT_FROM:
        return BenchRuns(tuple(runs), None)
    held_out = runs.pop(len(runs) // 2)
    return BenchRuns(tuple(runs), held_out)


def _check(run: MeasuredRun) -> None:
    if not run.at_client:
        raise InputError(
            f"{run.path}: is no result of vllm bench serve; fleetsim calibrate fit-host and check "
            "read other runs"
        )
    if len(run) < MIN_REQUESTS:
        raise InputError(
            f"{run.path}: {len(run)} requests are too few for a fit; send at least {MIN_REQUESTS}"
        )
    if run.failed > _LARGEST_FAILED_SHARE * (run.failed + len(run)):
        raise InputError(
            f"{run.path}: {run.failed} of {run.failed + len(run)} requests failed; what load they "
            "were to the server is not known"
        )
    if not (run.output_tokens > 1).any():
        raise InputError(f"{run.path}: every answer is one token, so steps cannot be told")


def seconds_long(run: MeasuredRun) -> float:
    """From the first arrival to the last token."""
    return float((run.arrival_s + run.e2e_s).max())


def in_flight(run: MeasuredRun) -> float:
    """Requests in the system on average, by Little's law."""
    return float(run.e2e_s.sum()) / seconds_long(run)


def rate(run: MeasuredRun) -> float:
    """Requests a second: as the client was told, or as they were served."""
    told = run.request_rate
    return told if told is not None and isfinite(told) else len(run) / seconds_long(run)


def label(run: MeasuredRun) -> str:
    """How a person tells the run from the others."""
    limit = f", {run.max_concurrency} in flight" if run.max_concurrency else ""
    return f"{run.name} ({rate(run):.3g}/s{limit})"


def _rank(run: MeasuredRun) -> tuple[float, float, str]:
    return rate(run), in_flight(run), str(run.path)


def replay_as_sent(
    run: MeasuredRun, profile: Profile, settings: EngineSettings, host: HostWork | None = None
) -> Replay:
    """Replays a run as its client drove it.

    Without ``max_concurrency`` requests are sent when they were; with it, when a slot is free, but
    not before they would have been sent without.
    """
    if run.max_concurrency is None:
        return replay(run, profile, settings, host)
    waited_s = run.client_queue_s if run.client_queue_s is not None else np.zeros(len(run))
    due_s = run.arrival_s - waited_s
    if (
        run.client_queue_s is None
        and run.request_rate is not None
        and not isfinite(run.request_rate)
    ):
        due_s = np.zeros(len(run))
    due_s = np.maximum.accumulate(due_s - due_s.min())
    load = _ClientLoad(True, due_s, run.prompt_tokens, run.output_tokens)
    return replay_closed_loop(load, run.max_concurrency, profile, settings, host)
