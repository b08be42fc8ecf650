"""A replica with c batch slots and steps of equal length is an M/M/c queue, in whole steps.

A request of one prompt token and n output tokens holds its slot for n steps; lengths are geometric,
the whole-step form of exponential. Arrivals wait for the step that runs to end, half a step in the
mean while anybody is being served.
"""

from __future__ import annotations

from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from queueing.queues import SERVICE_S, Floats, Ints, assert_mean_is, poisson_arrivals, run_queue
from scipy import stats

from fleetsim.calibration import StepCostParameters
from fleetsim.sim.sizing import erlang_c, mm1, mmc

MEAN_TOKENS = 200
STEP_S = SERVICE_S / MEAN_TOKENS
REPLICATIONS = 10


def _requests(
    folder: Path, seed: int, servers: int, utilization: float, count: int
) -> pd.DataFrame:
    rng = np.random.default_rng([seed, servers])
    arrivals = poisson_arrivals(rng, servers * utilization / SERVICE_S, count)
    outputs = rng.geometric(1.0 / MEAN_TOKENS, count)
    cost = StepCostParameters(constant_s=STEP_S)
    return run_queue(folder, arrivals, np.ones(count, dtype=np.int64), outputs, cost, servers)


def leave(arrival_s: Floats, steps: Ints, servers: int) -> Floats:
    """When each request leaves `servers` slots that are filled, first come first served, at the
    ends of steps; an idle engine starts at once.
    """
    ends = np.empty_like(arrival_s)
    running: list[tuple[int, int]] = []  # (number of its last step, request)
    now, step, waiting, count = 0.0, 0, 0, len(arrival_s)
    while waiting < count or running:
        if not running:
            now = max(now, float(arrival_s[waiting]))
        while waiting < count and arrival_s[waiting] <= now and len(running) < servers:
            heappush(running, (step + int(steps[waiting]) - 1, waiting))
            waiting += 1
        now += STEP_S
        while running and running[0][0] == step:
            ends[heappop(running)[1]] = now
        step += 1
    return ends


@pytest.mark.parametrize(("servers", "utilization"), [(1, 0.7), (4, 0.8), (16, 0.95)])
def test_every_request_leaves_when_a_slot_by_slot_simulation_says(
    tmp_path: Path, servers: int, utilization: float
) -> None:
    requests = _requests(tmp_path, 99, servers, utilization, 2000)
    ends = leave(requests["arrival_s"].to_numpy(), requests["output_tokens"].to_numpy(), servers)
    np.testing.assert_allclose(requests["ended_s"], ends, rtol=0, atol=1e-6)


def whole_step_queue(servers: int, utilization: float) -> float:
    """Mean time in system of the same queue in whole steps, solved exactly.

    The number in the system at the boundaries of steps is a Markov chain: those served leave with
    probability 1 / MEAN_TOKENS each, and a Poisson number arrives. (A step begins at once when a
    request meets an idle engine; that it is not modelled costs less than idle share * step / 2.)
    """
    arrivals_per_step = servers * utilization / MEAN_TOKENS
    most = int(servers + 30 / (1 - utilization))
    numbers = np.arange(most + 1)
    came = stats.poisson.pmf(numbers, arrivals_per_step)
    moves = np.zeros((most + 1, most + 1))
    for number in numbers:
        left = stats.binom.pmf(np.arange(servers + 1), min(number, servers), 1 / MEAN_TOKENS)
        for leaving in range(min(number, servers) + 1):
            stays = number - leaving
            moves[number, stays:] += left[leaving] * came[: most + 1 - stays]
    moves[:, -1] += 1.0 - moves.sum(axis=1)
    chain = moves.T - np.eye(most + 1)
    chain[-1] = 1.0
    at_boundaries = np.linalg.solve(chain, np.eye(most + 1)[-1])
    mean_number = float(at_boundaries @ numbers) + arrivals_per_step / 2
    return mean_number * STEP_S / arrivals_per_step


@pytest.mark.parametrize(("servers", "utilization"), [(1, 0.7), (4, 0.8), (16, 0.9)])
def test_whole_steps_cost_half_a_step(servers: int, utilization: float) -> None:
    """So the closed form for continuous time, and half a step, is what to expect below."""
    queue = mmc(servers * utilization / SERVICE_S, SERVICE_S, servers)
    expected = queue.mean_time_in_system_s + STEP_S / 2
    assert whole_step_queue(servers, utilization) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(
    ("servers", "utilization", "count", "power"), [(4, 0.8, 2500, 0.2), (16, 0.9, 3000, 0.35)]
)
def test_mmc(tmp_path: Path, servers: int, utilization: float, count: int, power: float) -> None:
    queue = mmc(servers * utilization / SERVICE_S, SERVICE_S, servers)
    systems, found_busy = [], []
    for seed in range(REPLICATIONS):
        requests = _requests(tmp_path, seed, servers, utilization, count)
        steps = requests["output_tokens"] * STEP_S
        served_s = requests["last_token_s"] - requests["scheduled_s"]
        np.testing.assert_allclose(served_s, steps, rtol=0, atol=1e-9)
        late = requests[count // 8 :]
        systems.append(float(late["e2e_s"].mean()))
        found_busy.append(float(_found_busy(requests, servers)[count // 8 :].mean()))
    assert_mean_is(queue.mean_time_in_system_s + STEP_S / 2, systems, power)
    assert_mean_is(erlang_c(servers, servers * utilization), found_busy, power)


def _found_busy(requests: pd.DataFrame, servers: int) -> Floats:
    """Whether all slots were taken when a request came (Poisson arrivals see time averages)."""
    arrivals = requests["arrival_s"].to_numpy()
    gone = np.searchsorted(np.sort(requests["ended_s"].to_numpy()), arrivals, side="right")
    busy: Floats = (np.arange(len(arrivals)) - gone >= servers).astype(float)
    return busy


def test_one_slot_is_an_mm1_queue(tmp_path: Path) -> None:
    queue = mm1(0.7 / SERVICE_S, SERVICE_S)
    systems = [
        float(_requests(tmp_path, seed, 1, 0.7, 2000)["e2e_s"][300:].mean())
        for seed in range(REPLICATIONS)
    ]
    assert_mean_is(queue.mean_time_in_system_s + STEP_S / 2, systems, 0.35)


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "utilization"), [(4, 0.8), (16, 0.9), (64, 0.95)])
def test_mmc_with_power(tmp_path: Path, servers: int, utilization: float) -> None:
    queue = mmc(servers * utilization / SERVICE_S, SERVICE_S, servers)
    systems = [
        float(_requests(tmp_path, seed, servers, utilization, 20_000)["e2e_s"][2000:].mean())
        for seed in range(REPLICATIONS)
    ]
    assert_mean_is(queue.mean_time_in_system_s + STEP_S / 2, systems, 0.15)
