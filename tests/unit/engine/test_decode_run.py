"""Ends of decode steps in closed form: the same clock as steps added up one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.calibration import HostWork, load_profile
from fleetsim.sim.engine.decode_run import DecodeRun
from fleetsim.sim.engine.step_cost import StepCost

H100 = load_profile("llama-3.1-8b-bf16-tp1-h100")
COSTS = {
    "profile, async": StepCost.from_profile(H100, "async"),
    "profile, sync": StepCost.from_profile(H100, "sync"),
    "equal steps": StepCost.linear(constant_s=0.01),
    "host work first": StepCost.linear(
        constant_s=0.001, per_decode_kv_token_s=1e-7, host=HostWork(base_s=0.004, residue_s=0.001)
    ),
    "host work for ever": StepCost.linear(constant_s=0.001, host=HostWork(base_s=0.004)),
}


def _run(cost: StepCost, n: int, kv_tokens: int, start_s: float = 0.0) -> DecodeRun:
    return DecodeRun(start_s, n, kv_tokens, cost.decode_terms(n))


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize(("n", "kv_tokens"), [(1, 0), (1, 100_000), (64, 64), (64, 200_000)])
def test_it_is_the_sum_of_the_steps(name: str, n: int, kv_tokens: int) -> None:
    cost = COSTS[name]
    run = _run(cost, n, kv_tokens, 7.5)
    durations = [cost.decode_step_s(n, kv_tokens + k * n) for k in range(2000)]
    ends = 7.5 + np.cumsum(durations)
    np.testing.assert_allclose([run.end_s(k + 1) for k in range(2000)], ends, rtol=0, atol=1e-9)
    assert run.end_s(0) == 7.5


@settings(max_examples=200)
@given(
    name=st.sampled_from(sorted(COSTS)),
    n=st.integers(1, 512),
    kv_tokens=st.integers(0, 2_000_000),
    start_s=st.floats(0, 1e6),
    steps=st.integers(0, 5000),
)
def test_steps_by_is_the_inverse_to_the_last_bit(
    name: str, n: int, kv_tokens: int, start_s: float, steps: int
) -> None:
    run = _run(COSTS[name], n, kv_tokens, start_s)
    end_s = run.end_s(steps)
    assert run.steps_by(end_s) == steps
    assert run.steps_by(np.nextafter(end_s, np.inf)) == steps
    assert run.steps_by((end_s + run.end_s(steps + 1)) / 2) == steps
    if steps:
        assert run.steps_by(np.nextafter(end_s, -np.inf)) == steps - 1
        assert run.steps_before(end_s) == steps - 1
    assert run.steps_before(np.nextafter(end_s, np.inf)) == steps


@settings(max_examples=100)
@given(
    name=st.sampled_from(sorted(COSTS)), n=st.integers(1, 512), kv_tokens=st.integers(0, 2_000_000)
)
def test_time_goes_forward_and_steps_never_get_shorter(name: str, n: int, kv_tokens: int) -> None:
    run = _run(COSTS[name], n, kv_tokens)
    ends = np.array([run.end_s(k) for k in range(300)])
    durations = np.diff(ends)
    assert (durations > 0).all()
    assert (np.diff(durations) >= -1e-12 * ends[-1]).all()
