"""A load of which only so many requests are in flight, against what must come out by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from fleetsim.calibration import Profile, StepCostParameters, analytic_profile
from fleetsim.sim.backtest import Lengths, replay, replay_closed_loop
from fleetsim.sim.backtest.measured import Floats, Ints
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.traces.errors import InputError

STEP_S = 0.01


def profile(latency_s: float = 0.0, per_request_s: float = 0.0) -> Profile:
    cost = StepCostParameters(constant_s=STEP_S)
    return analytic_profile(
        cost, num_gpu_blocks=4000, api_latency_s=latency_s, api_per_request_s=per_request_s
    )


def settings(max_num_seqs: int = 64, asynchronous: bool = True) -> EngineSettings:
    return EngineSettings(
        num_gpu_blocks=4000,
        max_num_seqs=max_num_seqs,
        async_scheduling=asynchronous,
        enable_prefix_caching=False,
    )


def lengths(outputs: list[int], at_client: bool = False) -> Lengths:
    return Lengths(np.full(len(outputs), 20), np.array(outputs), at_client)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_equal_requests_of_equal_steps_go_round_in_lockstep(
    concurrency: int, asynchronous: bool
) -> None:
    """Each cycle is the API server, one step of prefills and the decodes behind it."""
    load = lengths([25] * 5 * concurrency, at_client=True)
    done = replay_closed_loop(
        load, concurrency, profile(latency_s=0.003), settings(asynchronous=asynchronous)
    )
    cycle_s = 0.003 + 25 * STEP_S
    assert done.ttft_s == pytest.approx(0.003 + STEP_S)
    assert done.e2e_s == pytest.approx(cycle_s)
    cycles = np.arange(5 * concurrency) // concurrency
    assert done.sent_s == pytest.approx(cycles * cycle_s)
    assert done.steps == 5 * 25


@pytest.mark.parametrize(("asynchronous", "ttft_s"), [(False, STEP_S), (True, 2 * STEP_S)])
def test_the_next_one_meets_the_schedule_that_its_engine_can_still_change(
    asynchronous: bool, ttft_s: float
) -> None:
    done = replay_closed_loop(lengths([2, 9, 2]), 2, profile(), settings(asynchronous=asynchronous))
    assert done.sent_s.tolist() == pytest.approx([0.0, 0.0, 2 * STEP_S])
    assert done.ttft_s[2] == pytest.approx(ttft_s)


def test_never_more_in_flight_than_allowed_and_never_fewer_while_some_are_left() -> None:
    rng = np.random.default_rng(3)
    load = Lengths(rng.integers(1, 900, 200), rng.integers(1, 60, 200), at_client=True)
    done = replay_closed_loop(load, 7, profile(latency_s=0.013), settings(max_num_seqs=3))
    ends_s = done.sent_s + done.e2e_s
    assert np.isfinite(ends_s).all()
    for sent_s in done.sent_s[7:]:
        in_flight = (done.sent_s <= sent_s).sum() - (ends_s <= sent_s).sum()
        assert in_flight == 7
    assert (np.diff(done.sent_s) >= 0).all()


def test_a_burst_stands_in_line_at_the_api_server() -> None:
    """Each occupies it for as long as three steps, so each begins to be served three later."""
    load = lengths([1] * 6, at_client=True)
    done = replay_closed_loop(load, 6, profile(per_request_s=3 * STEP_S), settings())
    turns = 1 + np.arange(6)
    assert done.ttft_s == pytest.approx(turns * 3 * STEP_S + STEP_S)


@dataclass(frozen=True)
class Timed:
    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    at_client: bool = False


def test_a_request_leaves_at_its_arrival_or_when_a_slot_is_free() -> None:
    load = Timed(np.array([0.0, 0.02, 5.0, 5.0]), np.full(4, 20), np.array([10, 10, 10, 10]))
    done = replay_closed_loop(load, 1, profile(), settings())
    assert done.sent_s.tolist() == pytest.approx([0.0, 0.1, 5.0, 5.1])
    wide = replay_closed_loop(load, 4, profile(), settings())
    unlimited = replay(load, profile(), settings())
    assert wide.sent_s.tolist() == unlimited.sent_s.tolist() == load.arrival_s.tolist()
    assert wide.e2e_s.tolist() == unlimited.e2e_s.tolist()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1, got 0"):
        replay_closed_loop(lengths([1]), 0, profile(), settings())
    falling = Timed(np.array([1.0, 0.0]), np.full(2, 20), np.full(2, 3))
    with pytest.raises(InputError, match="arrivals fall"):
        replay_closed_loop(falling, 1, profile(), settings())
