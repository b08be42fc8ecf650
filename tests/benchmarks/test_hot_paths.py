"""The hot paths one by one, to see which of them a change made slower.

`make bench` times them; among the other tests each runs once, so that they stay runnable.
"""

from __future__ import annotations

from typing import Any

import pytest
from unit.policies.fakes import FakeRequest, pool_of
from unit.results.fake_run import fake_journeys

from fleetsim.calibration import load_profile
from fleetsim.policies import build
from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.engine.decode_run import DecodeRun
from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.sim.randomness import Draws
from fleetsim.sim.results.recorder import Recorder
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate
from fleetsim.traces import build_segments, load_sample

EVENTS = 1000
Benchmark = Any


def test_alarms(benchmark: Benchmark) -> None:
    """A thousand events of the clock, each of which sets the next."""

    def run() -> float:
        clock = Clock()

        def again(_alarm: Any) -> None:
            clock.at(clock.now + 1.0, rank(ARRIVAL, 0), again)

        clock.at(0.0, rank(ARRIVAL, 0), again)
        assert clock.run_events(EVENTS)
        return clock.now

    assert benchmark(run) == EVENTS - 1


@pytest.mark.parametrize("batch", [8, 512])
def test_a_decode_step_costs_the_same_in_every_batch(benchmark: Benchmark, batch: int) -> None:
    """Schedule and update; the time must not grow with the batch."""
    scheduler = Scheduler(EngineSettings(num_gpu_blocks=1_000_000, async_scheduling=False))
    for i in range(batch):
        # of different lengths, so that their blocks fill in different steps
        scheduler.add(Sequence(i, 0.0, 100 + i % 16, 1_000_000, True, []))
    while scheduler.n_decodes < batch:
        scheduler.schedule()
        scheduler.update()

    def step() -> int:
        done = scheduler.schedule()
        scheduler.update()
        assert done is not None
        return done.n_decodes

    # not for as long as it pleases the benchmark, or the blocks would run out
    assert benchmark.pedantic(step, rounds=1000, iterations=10) == batch


@pytest.mark.parametrize("steps", [2, 1000])
def test_a_leap_costs_the_same_at_every_length(benchmark: Benchmark, steps: int) -> None:
    """When its last step ends, and how many have ended by then."""
    cost = StepCost.from_profile(load_profile("llama-3.1-8b-bf16-tp1-h100"))
    terms = cost.decode_terms(64)

    def leap() -> int:
        run = DecodeRun(0.0, 64, 64 * 2048, terms)
        return run.steps_by(run.end_s(steps))

    assert benchmark(leap) == steps


@pytest.mark.parametrize("replicas", [4, 1000])
def test_two_choices_cost_two(benchmark: Benchmark, replicas: int) -> None:
    """The time of a decision must not grow with the pool."""
    router = build("routing", "power_of_two", {}, "benchmark")
    pool, request, draws = pool_of(replicas), FakeRequest(), Draws(0, "benchmark")
    assert 0 <= benchmark(router.choose, request, pool, draws).target < replicas


def test_reading_the_sample(benchmark: Benchmark) -> None:
    """The bundled trace, and its prompts' shared segments."""
    assert benchmark(lambda: build_segments(load_sample())) is not None


def test_a_small_run(benchmark: Benchmark) -> None:
    """A thousand requests of the sample, from YAML to summary, in memory."""

    def run() -> int:
        result = simulate(load_scenario(None, ["workload.head=1000"]))
        return int(result.summary["requests"]["completed"])

    assert benchmark.pedantic(run, rounds=3) == EVENTS


def test_keeping_a_journey(benchmark: Benchmark) -> None:
    """From the object to its row, a share of the flush included."""
    recorder = Recorder(None)
    journeys = fake_journeys(8192)

    def keep_all() -> None:
        for journey in journeys:
            recorder.journey(journey)

    benchmark(keep_all)
