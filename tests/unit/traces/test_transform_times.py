"""Transforms that move arrivals: their laws, within stated sampling error."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from unit.traces.trace_measures import counts, poisson

from fleetsim.traces import (
    Categorical,
    InputError,
    Trace,
    load_trace,
    trace_stats,
)
from fleetsim.traces.dispersion import index_of_dispersion
from fleetsim.traces.transforms import (
    Day,
    FlashCrowd,
    Points,
    Week,
    dequantize,
    modulate,
    reburst,
)


@pytest.fixture(scope="module")
def mooncake(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/mooncake_fast25/conversation_trace.jsonl.gz")


@pytest.fixture(scope="module")
def azure_conv(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/azure_2023/AzureLLMInferenceTrace_conv.csv")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_dequantized_mooncake_is_nearly_poisson(mooncake: Trace, seed: int) -> None:
    raw = mooncake.arrival_s
    assert trace_stats(mooncake).interarrival_cv == pytest.approx(3.03, abs=0.005)
    measured = [index_of_dispersion(raw, w) for w in (1, 10, 60)]
    assert measured == pytest.approx([7.9, 2.1, 2.9], abs=0.05)
    spread = dequantize(mooncake, seed=seed)
    # 3,540 windows of 1 s, 354 of 10 s: standard errors 0.024 and 0.11; 60 s hardly changes
    assert trace_stats(spread).interarrival_cv == pytest.approx(1.01, abs=0.03)
    assert index_of_dispersion(spread.arrival_s, 1) == pytest.approx(1.05, abs=0.08)
    assert index_of_dispersion(spread.arrival_s, 10) == pytest.approx(1.5, abs=0.2)
    assert index_of_dispersion(spread.arrival_s, 60) == pytest.approx(2.9, abs=0.15)
    assert spread.metadata.time_resolution_s is None
    assert "neither shown nor excluded" in spread.metadata.warnings[-1]


def test_dequantize_never_leaves_a_tick() -> None:
    stamps = np.sort(np.random.Generator(np.random.Philox(1)).integers(0, 50, 1000)) * 2.0
    trace = replace(poisson(1000), arrival_s=stamps - stamps[0])
    spread = dequantize(trace, 2.0, seed=1)
    late = np.sort(spread.source_row)  # by source row again
    order = np.argsort(spread.source_row)
    moved = spread.arrival_s[order] - trace.arrival_s[late]
    assert np.ptp(moved) < 2.0
    assert np.std(moved) == pytest.approx(2 / math.sqrt(12), rel=0.05)


def test_dequantize_needs_the_right_tick() -> None:
    trace = replace(poisson(100), arrival_s=np.arange(100) // 5 * 3.0)
    with pytest.raises(InputError, match="does not know on what grid it was stamped; give tick_s"):
        dequantize(trace, seed=1)
    with pytest.raises(InputError, match="19 of 19 stamps follow the one before sooner"):
        dequantize(trace, 10.0, seed=1)
    with pytest.raises(InputError, match=r"tick_s 0\.0 must be a positive number"):
        dequantize(trace, 0.0, seed=1)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0, 4.0])
def test_reburst_hits_its_cv_and_keeps_the_rate(cv: float) -> None:
    trace = poisson(40_000)
    made = reburst(trace, cv, seed=3, bin_s=4000)  # one bin: a constant rate
    # the error of a CV estimate: Gamma gaps have a kurtosis of 3 + 6 cv^2
    error = cv * math.sqrt((2 + 6 * cv**2) / 4 / 40_000 + cv**2 / 40_000)
    assert trace_stats(made).interarrival_cv == pytest.approx(cv, abs=4 * error)
    assert made.arrival_s[-1] == pytest.approx(trace.arrival_s[-1])
    assert np.array_equal(made.prompt_tokens, trace.prompt_tokens)
    record = made.metadata.transforms[-1]
    assert record["reached_cv"] == pytest.approx(trace_stats(made).interarrival_cv, abs=1e-4)
    # a renewal process has an IDC of cv^2 at windows of many gaps (100 at 10 s)
    assert record["reached_idc_10s"] == pytest.approx(cv**2, rel=0.25, abs=0.05)


def test_reburst_follows_the_rate_of_the_trace(azure_conv: Trace) -> None:
    made = reburst(azure_conv, 2, seed=1)
    record = made.metadata.transforms[-1]
    assert record["reached_cv_at_constant_rate"] == pytest.approx(2, abs=0.1)
    assert set(record) >= {"reached_cv", "reached_idc_1s", "reached_idc_10s", "reached_idc_60s"}
    end_s = float(azure_conv.arrival_s[-1])
    before, after = (counts(trace, 12, end_s) for trace in (azure_conv, made))
    # a count of N has a spread of cv sqrt(N), and the place of the whole drifts as much
    assert (np.abs(after - before) < 4 * 2 * np.sqrt(before)).all()
    assert np.corrcoef(before, after)[0, 1] > 0.9
    assert 16 < record["reached_idc_60s"] < 16 + 2 * 2**2 + 4  # the trace's own, and the gaps'


def test_closed_loops_move_with_their_start() -> None:
    trace = replace(
        poisson(4),
        arrival_s=np.array([0.0, 10.0, 12.0, 20.0]),
        parent=np.array([-1, -1, 1, 2]),
        think_s=np.array([np.nan, np.nan, 1.0, 1.0]),
    )
    made = reburst(trace, 1, seed=1)
    assert np.allclose(made.arrival_s - made.arrival_s[1], [-10, 0, 2, 10])
    assert np.array_equal(made.parent, trace.parent)


@pytest.mark.parametrize(
    "curve",
    [
        Day(period_s=2000, peak_at_s=1000),
        Day(period_s=2000, peak_at_s=1000, shape="log_sinusoid"),
        FlashCrowd(500, factor=6, ramp_s=60, hold_s=200, decay_s=100),
        Week((1, 1, 2, 1, 1, 0, 0.5), first_day=4, day_s=2000 / 7),
        Points(((0, 1), (1000, 3), (1500, 0), (1800, 2))),
    ],
    ids=lambda curve: f"{type(curve).__name__} {getattr(curve, 'shape', '')}",
)
def test_modulate_follows_its_curve(curve: Day | FlashCrowd | Week | Points) -> None:
    trace = poisson(20_000)
    end_s = float(trace.arrival_s[-1])
    made = modulate(trace, [curve], bin_s=end_s)
    assert made.arrival_s[-1] == pytest.approx(end_s)
    fine = (np.arange(40_000) + 0.5) / 40_000 * end_s
    expected = curve.rate(fine).reshape(40, 1000).sum(axis=1)
    expected *= len(trace) / expected.sum()
    # 5 standard errors of a Poisson count; 1 for what lies on a bin's edge
    assert (np.abs(counts(made, 40, end_s) - expected) <= 5 * np.sqrt(expected) + 1).all()


def test_the_tenfold_day_is_tenfold() -> None:
    at = np.linspace(0, 86400, 100_001)
    for shape, peak_over_mean in (("sinusoid", 1.82), ("log_sinusoid", 2.33)):
        rate = Day(shape=shape).rate(at)  # type: ignore[arg-type]
        assert rate.max() / rate.min() == pytest.approx(10)
        assert rate.max() / rate[:-1].mean() == pytest.approx(peak_over_mean, abs=0.005)
        assert at[np.argmax(rate)] == 43200


def test_curves_multiply_and_what_is_finer_than_a_bin_stays() -> None:
    trace = reburst(poisson(20_000), 2, seed=1, bin_s=4000)
    end_s = float(trace.arrival_s[-1])
    level = modulate(trace, [Points(((0, 1),))], bin_s=end_s)
    assert np.allclose(level.arrival_s, trace.arrival_s)
    twice = modulate(trace, [Points(((0, 1), (end_s, 3)))] * 2, bin_s=end_s)
    halves = counts(twice, 2, end_s)
    assert halves[1] / halves[0] == pytest.approx((27 - 8) / (8 - 1), rel=0.1)  # of (1 + t)^2
    assert index_of_dispersion(modulate(trace, [Points(((0, 1),))]).arrival_s, 1) > 2.5


def test_turns_within_a_stamp_keep_their_order() -> None:
    trace = replace(
        poisson(400),
        arrival_s=np.arange(400) // 8 * 3.0,
        session=Categorical.from_values([f"s{n % 2 + 2 * (n // 8)}" for n in range(400)]),
        turn=np.array([n % 8 // 2 for n in range(400)], np.int32),
    )
    spread = dequantize(trace, seed=1, tick_s=3.0)
    assert spread.session is not None
    assert spread.turn is not None
    for code in range(100):
        assert spread.turn[spread.session.codes == code].tolist() == [0, 1, 2, 3]
    assert not np.array_equal(spread.source_row, trace.source_row)  # sessions do mix


def test_curves_at_given_times() -> None:
    at = np.array([0.0, 5.0, 10.0, 30.0, 60.0, 70.0, 75.0])
    week = Week((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), first_day=5, day_s=10.0)
    assert week.rate(at).tolist() == [6, 6, 7, 2, 5, 6, 6]
    crowd = FlashCrowd(10, factor=5, ramp_s=20, hold_s=30, decay_s=10)
    expected = [1, 1, 1, 5, 5, 1 + 4 * math.exp(-1), 1 + 4 * math.exp(-1.5)]
    assert crowd.rate(at) == pytest.approx(np.array(expected))
    step = FlashCrowd(5, factor=3, ramp_s=0, hold_s=25, decay_s=0)
    assert step.rate(at).tolist() == [1, 3, 3, 3, 1, 1, 1]
    assert Points(((5, 1), (10, 3))).rate(at).tolist() == [1, 1, 3, 3, 3, 3, 3]
    assert Day(4, period_s=20, peak_at_s=5).rate(np.array([5.0, 10.0, 15.0])) == pytest.approx(
        np.array([4, 2.5, 1])
    )
