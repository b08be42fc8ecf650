"""SLOs by their definitions: all offered requests in the denominator, parts never mixed."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.sim.results.slo import judge, met, per_request_bounds, percentile


@dataclass(frozen=True)
class Target:
    metric: str
    percentile: float
    at_most_s: float
    max_prompt_tokens: int | None = None


@dataclass(frozen=True)
class Bounds:
    client_ttft_s: float | None = None
    gateway_ttft_s: float | None = None
    engine_ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True)
class ASlo:
    percentiles: tuple[Target, ...] = ()
    per_request: Bounds = field(default_factory=Bounds)


def test_percentile_of_ten_is_not_the_ninth() -> None:
    values = np.arange(1.0, 11.0)
    assert percentile(values, 99) == pytest.approx(9.91)
    assert percentile(values, 100) == 10.0
    assert percentile(values, 50) == 5.5


def test_percentile_of_nothing_is_nan() -> None:
    assert isnan(percentile(np.array([]), 99))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.001, 100.0), max_size=30),
    st.integers(0, 10),
    st.sampled_from([0.0, 12.5, 25.0, 50.0, 75.0, 87.5, 100.0]),
)
def test_misses_are_infinitely_slow(values: list[float], misses: int, percent: float) -> None:
    if not values and not misses:
        return
    observed = percentile(np.array(values), percent, misses)
    offered = np.array(values + [1e30] * misses)
    if np.percentile(offered, percent, method="higher") == 1e30:
        assert observed == inf
    else:
        assert observed == pytest.approx(float(np.percentile(offered, percent)))


def test_a_fleet_that_rejects_everything_does_not_pass() -> None:
    measured = {"client_ttft_s": np.full(4, nan)}
    verdict = judge(Target("client_ttft_s", 99, 1.0), np.zeros(4, bool), measured, np.ones(4))
    assert verdict.passed is False
    assert (verdict.observed_s, verdict.requests, verdict.misses) == (inf, 4, 4)
    assert isnan(verdict.completed_s)


def test_two_percent_of_misses_fail_a_p99_and_pass_a_p90() -> None:
    completed = np.arange(100) >= 2
    measured = {"client_ttft_s": np.where(completed, 0.2, nan)}
    prompts = np.ones(100)
    assert judge(Target("client_ttft_s", 99, 1.0), completed, measured, prompts).passed is False
    p90 = judge(Target("client_ttft_s", 90, 1.0), completed, measured, prompts)
    assert p90.passed is True
    assert p90.observed_s == pytest.approx(0.2)


def test_no_request_to_look_at_is_neither_pass_nor_fail() -> None:
    target = Target("e2e_s", 50, 1.0, max_prompt_tokens=10)
    verdict = judge(target, np.ones(3, bool), {"e2e_s": np.ones(3)}, np.full(3, 500))
    assert verdict.passed is None
    assert isnan(verdict.observed_s)
    assert verdict.requests == 0


def test_prompt_filter_and_the_bound_itself() -> None:
    completed = np.ones(3, bool)
    measured = {"client_ttft_s": np.array([0.1, 1.0, 9.0])}
    prompts = np.array([100, 2048, 2049])
    target = Target("client_ttft_s", 100, 1.0, max_prompt_tokens=2048)
    verdict = judge(target, completed, measured, prompts)
    assert verdict.passed is True  # at most: equality passes
    assert verdict.requests == 2


def test_tpot_of_a_single_token_is_left_out_of_percentiles_and_met_by_bounds() -> None:
    completed = np.array([True, True, False])
    measured = {"tpot_s": np.array([nan, 0.04, nan])}
    verdict = judge(Target("tpot_s", 0, 0.05), completed, measured, np.ones(3))
    assert (verdict.requests, verdict.misses) == (2, 1)
    assert met({"tpot_s": 0.05}, completed, measured).tolist() == [True, True, False]


def test_all_bounds_must_be_met_and_misses_meet_none() -> None:
    completed = np.array([True, True, True, False])
    measured = {
        "client_ttft_s": np.array([0.5, 0.5, 2.0, 0.1]),
        "e2e_s": np.array([5.0, 50.0, 5.0, 0.1]),
    }
    bounds = per_request_bounds(ASlo(per_request=Bounds(client_ttft_s=1.0, e2e_s=10.0)))
    assert met(bounds, completed, measured).tolist() == [True, False, False, False]


def test_an_unknown_ttft_is_not_met() -> None:
    measured = {"client_ttft_s": np.array([nan])}
    assert met({"client_ttft_s": 1.0}, np.array([True]), measured).tolist() == [False]
