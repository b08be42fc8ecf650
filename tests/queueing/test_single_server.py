"""A replica that serves one prompt at a time is an M/M/1, M/D/1 or M/G/1 queue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from queueing.queues import (
    MEAN_TOKENS,
    SERVICE_S,
    Ints,
    assert_mean_is,
    lindley,
    poisson_arrivals,
    run_prompts,
)

from fleetsim.sim.sizing import mg1, mm1

REPLICATIONS = 10


def _lengths(kind: str, rng: np.random.Generator, count: int) -> Ints:
    if kind == "exponential":
        return np.ceil(rng.exponential(MEAN_TOKENS, count) - 0.5).astype(np.int64).clip(1)
    if kind == "fixed":
        return np.full(count, MEAN_TOKENS)
    # nine short prompts for each long one
    return np.where(rng.random(count) < 0.9, 200, 8200)


CV = {"exponential": 1.0, "fixed": 0.0, "two kinds": 2.4}


def test_the_two_kinds_have_the_stated_moments() -> None:
    lengths = np.array([200] * 9 + [8200])
    assert lengths.mean() == MEAN_TOKENS
    assert lengths.std() / lengths.mean() == pytest.approx(CV["two kinds"])


@pytest.mark.parametrize("kind", CV)
def test_every_customer_leaves_when_lindleys_recursion_says(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(1)
    arrivals = poisson_arrivals(rng, 0.9 / SERVICE_S, 4000)
    lengths = _lengths(kind, rng, 4000)
    requests = run_prompts(tmp_path, arrivals, lengths)
    ends = lindley(arrivals, lengths * (SERVICE_S / MEAN_TOKENS))
    np.testing.assert_allclose(requests["ended_s"], ends, rtol=1e-12)
    np.testing.assert_allclose(
        requests["queue_s"], np.maximum(0.0, np.roll(ends, 1) - arrivals) * (np.arange(4000) > 0),
        rtol=0, atol=1e-9,
    )  # fmt: skip


@pytest.mark.parametrize("utilization", [0.7, 0.9, 0.95])
@pytest.mark.parametrize("kind", CV)
def test_lindleys_recursion_agrees_with_the_formula(kind: str, utilization: float) -> None:
    """So what holds of the recursion, which is cheap, holds of the replica above."""
    queue = mg1(utilization / SERVICE_S, SERVICE_S, CV[kind])
    systems = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([seed, round(utilization * 100), 2])
        arrivals = poisson_arrivals(rng, utilization / SERVICE_S, 300_000)
        ends = lindley(arrivals, _lengths(kind, rng, 300_000) * (SERVICE_S / MEAN_TOKENS))
        systems.append(float((ends - arrivals)[10_000:].mean()))
    assert_mean_is(queue.mean_time_in_system_s, systems, 0.2)


def _means(
    folder: Path, kind: str, utilization: float, count: int, warm_up: int
) -> tuple[list[float], list[float]]:
    """Mean time in system and mean wait of each replication."""
    systems, waits = [], []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([seed, round(utilization * 100)])
        arrivals = poisson_arrivals(rng, utilization / SERVICE_S, count)
        requests = run_prompts(folder, arrivals, _lengths(kind, rng, count))
        systems.append(float(requests["e2e_s"][warm_up:].mean()))
        waits.append(float(requests["queue_s"][warm_up:].mean()))
    return systems, waits


@pytest.mark.parametrize(("utilization", "count", "power"), [(0.7, 3000, 0.3), (0.9, 4000, 0.5)])
def test_mm1(tmp_path: Path, utilization: float, count: int, power: float) -> None:
    queue = mm1(utilization / SERVICE_S, SERVICE_S)
    systems, waits = _means(tmp_path, "exponential", utilization, count, count // 8)
    assert_mean_is(queue.mean_time_in_system_s, systems, power)
    assert_mean_is(queue.mean_wait_s, waits, power)


@pytest.mark.parametrize(("kind", "power"), [("fixed", 0.35), ("two kinds", 0.6)])
def test_mg1(tmp_path: Path, kind: str, power: float) -> None:
    queue = mg1(0.8 / SERVICE_S, SERVICE_S, CV[kind])
    systems, waits = _means(tmp_path, kind, 0.8, 2500, 300)
    assert_mean_is(queue.mean_time_in_system_s, systems, power)
    assert_mean_is(queue.mean_wait_s, waits, power)


@pytest.mark.slow
@pytest.mark.parametrize("utilization", [0.7, 0.9, 0.95])
def test_mm1_with_power(tmp_path: Path, utilization: float) -> None:
    """The chapter's three utilisations, each to a few per cent."""
    queue = mm1(utilization / SERVICE_S, SERVICE_S)
    count = {0.7: 20_000, 0.9: 60_000, 0.95: 120_000}[utilization]
    systems, waits = _means(tmp_path, "exponential", utilization, count, count // 20)
    power = 0.3 if utilization > 0.9 else 0.2
    assert_mean_is(queue.mean_time_in_system_s, systems, power)
    assert_mean_is(queue.mean_wait_s, waits, power)
