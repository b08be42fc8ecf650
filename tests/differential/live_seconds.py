"""Seconds of a live run: a step cost fitted to its steps, and the run simulated with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from differential.fast_engine import Listener, chain_of
from differential.recording import Recording, Row
from differential.workloads import Workload, output_limit, outside_events

from fleetsim.calibration.nnls import non_negative_least_squares
from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.engine.engine import Engine
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost, StepCostParameters

Floats = npt.NDArray[np.float64]

_COEFFICIENTS = (
    "constant_s",
    "token_slopes_s",
    "per_decode_s",
    "per_decode_kv_token_s",
    "per_prefill_square_s",
    "per_prefill_context_s",
)


@dataclass(slots=True)
class Fit:
    """Coefficients by least squares, none negative, and how well they tell the steps apart."""

    parameters: StepCostParameters
    steps: int
    r_squared: float
    median_error: float  # relative, of a step


@dataclass(slots=True)
class Latency:
    """Of each request that was not aborted, in order of arrival; TPOT of those with two tokens."""

    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats


def fit(recording: Recording) -> Fit:
    """The step cost of the recorded steps."""
    shapes = np.array([_shape(row) for row in recording.rows], dtype=np.float64)
    seconds = np.array([row.t_end - row.t_start for row in recording.rows])
    coefficients = non_negative_least_squares(shapes, seconds)
    errors = shapes @ coefficients - seconds
    named = dict(zip(_COEFFICIENTS, coefficients.tolist(), strict=True))
    return Fit(
        StepCostParameters(**named | {"token_slopes_s": (named["token_slopes_s"],)}),
        len(seconds),
        float(1.0 - (errors**2).sum() / ((seconds - seconds.mean()) ** 2).sum()),
        float(np.median(np.abs(errors) / seconds)),
    )


def _shape(row: Row) -> list[float]:
    """What a step computes, in the terms of `StepCostParameters`.

    One token over some context is a decode. (A prefill's last token looks like one and, costing
    the same, is one.)
    """
    decodes = [context for _, tokens, context in row.scheduled if tokens == 1 and context]
    chunks = [(c, p) for _, c, p in row.scheduled if c > 1 or not p]
    return [
        1.0,
        sum(tokens for _, tokens, _ in row.scheduled),
        len(decodes),
        sum(decodes),
        sum(c * c for c, _ in chunks) / 2,
        sum(c * p for c, p in chunks),
    ]


def measured(workload: Workload, recording: Recording, due_s: dict[str, float]) -> Latency:
    """What the clients of the live engine waited, from when they wanted it."""
    first_token_s, end_s = {}, {}
    for name, record in recording.requests.items():
        if record.first_token_s is not None:
            first_token_s[name] = record.first_token_s
        end_s[name] = record.end_s
    return _latency(workload, due_s, first_token_s, end_s)


def simulated(
    workload: Workload, due_s: dict[str, float], parameters: StepCostParameters
) -> Latency:
    """What they would have waited with this step cost: the same arrivals, another clock."""
    flags = dict(workload["engine"])
    flags["scheduling_policy"] = flags.pop("policy")
    settings = EngineSettings(**flags)  # type: ignore[arg-type]
    clock, listener = Clock(), Listener()
    engine = Engine(clock, 0, settings, StepCost(parameters, mode="sync"), listener)
    sequences = [
        Sequence(
            number,
            due_s[request["id"]],
            request["prompt_tokens"],
            request["output_tokens"],
            request["output_tokens"] == output_limit(workload["engine"], request),
            chain_of(request, settings.block_size),
            request["priority"],
            owner=request["id"],
        )
        for number, request in enumerate(workload["requests"])
    ]

    def outside(kind: int, number: int, _: object) -> None:
        if kind == 0:
            engine.submit(sequences[number], clock.now)
        else:
            engine.abort(sequences[number])

    for order, (time_s, kind, number) in enumerate(outside_events(workload)):
        if kind == 0:
            time_s = due_s[workload["requests"][number]["id"]]
        clock.at(time_s, rank(ARRIVAL, order), partial(outside, kind, number))
    clock.run()
    return _latency(workload, due_s, listener.first_token_s, listener.end_s)


def _latency(
    workload: Workload,
    due_s: dict[str, float],
    first_token_s: dict[str, float],
    end_s: dict[str, float],
) -> Latency:
    ttft, tpot, e2e = [], [], []
    for request in workload["requests"]:
        name = request["id"]
        if request["abort_s"] is not None:
            continue
        ttft.append(first_token_s[name] - due_s[name])
        e2e.append(end_s[name] - due_s[name])
        if request["output_tokens"] > 1:
            tpot.append((end_s[name] - first_token_s[name]) / (request["output_tokens"] - 1))
    return Latency(np.array(ttft), np.array(tpot), np.array(e2e))
