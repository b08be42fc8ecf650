"""A profile's uncertainty drawn as another machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from invariants.fleets import run_both_ways, small_fleet, write_profile

from fleetsim.calibration import StepCostParameters, analytic_profile
from fleetsim.calibration.uncertainty import Uncertainty
from fleetsim.sim.calibration_draw import draw_factors
from fleetsim.sim.simulate import simulate
from fleetsim.traces import InputError

SPREAD = Uncertainty(decode_log_sd=0.05, prefill_log_sd=0.2, source="stated")
COST = StepCostParameters(constant_s=0.01)
ROWS = [{"arrival_s": 0.0, "prompt_tokens": 30, "output_tokens": 11}]


def test_factors_are_log_normal_with_the_stated_spread() -> None:
    profile = analytic_profile(COST, uncertainty=SPREAD)
    logs = np.log([draw_factors(profile, draw) for draw in range(4000)])
    assert np.median(logs, axis=0) == pytest.approx([0.0, 0.0], abs=0.012)
    assert logs.std(axis=0) == pytest.approx([0.05, 0.2], rel=0.05)
    assert abs(np.corrcoef(logs.T)[0, 1]) < 0.05


def test_each_kind_of_step_gets_its_factor(tmp_path: Path) -> None:
    profile = write_profile(tmp_path, step_cost=COST, uncertainty=SPREAD)
    decode, prefill = draw_factors(analytic_profile(COST, name="profile", uncertainty=SPREAD), 7)
    assert decode != 1.0 != prefill
    result = run_both_ways(small_fleet(tmp_path, ROWS, profile=profile, calibration_draw=7))
    request = result.requests().iloc[0]
    first_s = request["first_token_s"] - request["scheduled_s"]
    assert first_s == pytest.approx(0.01 * prefill)
    assert request["last_token_s"] - request["first_token_s"] == pytest.approx(0.1 * decode)
    assert f"decode steps take {decode:.3f} times" in result.summary["provenance"]["notes"][-1]


def test_a_draw_is_one_machine_whatever_the_seed(tmp_path: Path) -> None:
    profile = write_profile(tmp_path, step_cost=COST, uncertainty=SPREAD)

    def e2e_s(seed: int, draw: int) -> float:
        scenario = small_fleet(tmp_path, ROWS, profile=profile, seed=seed, calibration_draw=draw)
        return float(simulate(scenario).requests()["last_token_s"].iloc[0])

    assert e2e_s(0, 1) == e2e_s(5, 1) != e2e_s(0, 2)


def test_what_states_no_uncertainty_cannot_be_drawn_from(tmp_path: Path) -> None:
    scenario = small_fleet(tmp_path, ROWS, calibration_draw=1)
    with pytest.raises(InputError, match="profile profile states no uncertainty"):
        simulate(scenario)
