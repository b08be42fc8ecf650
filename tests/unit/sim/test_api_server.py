"""The API server as a queue: first come, first served, on processes that also stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from invariants.fleets import check_conservation, run_both_ways, small_fleet, write_profile

from fleetsim.calibration import StepCostParameters
from fleetsim.calibration.overheads import ApiServer as Costs
from fleetsim.sim.api_server import ApiServer


class Engine:
    """So many requests run, each a step of 10 ms a token."""

    def __init__(self, running: int) -> None:
        self.running = running

    def num_requests_running(self) -> int:
        return self.running

    def decode_tokens(self) -> int:
        return 100 * self.running

    def decode_step_s(self, n_decodes: int, kv_tokens: int) -> float:
        assert kv_tokens == 100 * n_decodes
        return 0.01


def server(count: int = 1, running: int = 0, **costs: float) -> ApiServer:
    stated = {"latency_s": 0.0, "per_request_s": 0.0, "per_prompt_token_s": 0.0, "per_chunk_s": 0.0}
    whole = Costs.model_validate(
        {"api_server_count": count, "engine_version": "any", "source": "stated", **stated, **costs}
    )
    engine = Engine(running)
    return ApiServer(whole, count, engine, engine)


def test_requests_stand_in_line() -> None:
    api = server(per_request_s=0.5, per_prompt_token_s=0.001, latency_s=2.0)
    assert api.take(10.0, 500) == 13.0
    assert api.take(10.5, 0) == 13.5  # begins when the first is through
    assert api.take(20.0, 0) == 22.5  # an idle server starts at once


def test_each_process_takes_one() -> None:
    api = server(count=2, per_request_s=1.0)
    assert [api.take(0.0, 1) for _ in range(5)] == [1.0, 1.0, 2.0, 2.0, 3.0]


def test_latency_occupies_nobody() -> None:
    api = server(latency_s=1.0)
    assert [api.take(0.0, 1) for _ in range(3)] == [1.0, 1.0, 1.0]


def test_streaming_takes_its_share() -> None:
    """20 requests at 100 tokens a second, 0.25 ms a chunk: half of the one process."""
    assert server(running=20, per_chunk_s=2.5e-4, per_request_s=0.1).take(0.0, 1) == pytest.approx(
        0.2
    )
    halved = server(count=2, running=20, per_chunk_s=2.5e-4, per_request_s=0.1)
    assert halved.take(0.0, 1) == pytest.approx(0.1 / 0.75)
    assert halved.saturated == 0


def test_a_saturated_server_says_so() -> None:
    api = server(running=50, per_chunk_s=2.5e-4, per_request_s=0.1)
    assert api.take(0.0, 1) == pytest.approx(2.0)
    assert api.saturated == 1


def test_a_burst_in_a_whole_run(tmp_path: Path) -> None:
    """Ten at once, 50 ms each: they reach the engine one by one, and more processes help."""
    rows = [{"arrival_s": 1.0, "prompt_tokens": 10, "output_tokens": 2} for _ in range(10)]
    profile = write_profile(tmp_path, api_per_request_s=0.05)
    for count, last_s in ((None, 0.5), (2, 0.25)):
        scenario = small_fleet(tmp_path, rows, profile=profile, engine={"api_server_count": count})
        result = run_both_ways(scenario)
        check_conservation(result)
        assert result.requests()["queued_s"].max() == pytest.approx(last_s)


def test_a_queue_of_fixed_service_is_m_d_1(tmp_path: Path) -> None:
    """Poisson arrivals, 40 ms each at 20 a second: W = rho * S / (2 * (1 - rho)), rho = 0.8."""
    profile = write_profile(
        tmp_path,
        step_cost=StepCostParameters(constant_s=1e-5),
        api_per_request_s=0.04,
        num_gpu_blocks=100_000,
    )
    scenario = small_fleet(
        tmp_path,
        [{"arrival_s": 0.0, "prompt_tokens": 1, "output_tokens": 1}],
        profile=profile,
        engine={"num_gpu_blocks_override": None},
    )
    synthetic = {
        "requests": 20_000,
        "prompt_tokens": 1,
        "output_tokens": 1,
        "arrivals": {"process": "poisson", "rate_per_s": 20.0},
    }
    data = scenario.model_dump(exclude_unset=True)
    data["workload"] = {"synthetic": synthetic}
    from fleetsim.sim.scenario import Scenario
    from fleetsim.sim.simulate import simulate

    again = Scenario.model_validate(data).with_origin(scenario.origin)
    requests = simulate(again).requests()
    waited_s = requests["queued_s"] - requests["dispatched_s"] - 0.04
    assert waited_s.mean() == pytest.approx(0.8 * 0.04 / 2 / 0.2, rel=0.05)
