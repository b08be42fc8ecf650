"""Trust, do not trust, cannot tell: each for its own reason."""

import numpy as np
import pytest

from fleetsim.sim.backtest.fleet_series import Histogram
from fleetsim.sim.backtest.verdict import (
    CANNOT_TELL,
    DO_NOT_TRUST,
    TRUST,
    Ratio,
    half_width,
    judge_mean,
    judge_peak,
    judge_quantile,
)

EDGES = np.arange(11)
WEIGHTS = np.full(10, 50.0)
NOISE = np.array([3.0, -2.0, 1.0, -1.0, 2.0, -3.0, 1.0, -1.0, 2.0, -2.0])


def ratio(mean: float, noise: float = 0.0) -> Ratio:
    return Ratio((mean + noise * NOISE) * WEIGHTS, WEIGHTS)


def test_the_interval_is_that_of_paired_blocks() -> None:
    """With equal weights it is Student's, of the blocks' differences."""
    differences = 0.3 * NOISE
    expected = 2.262 * differences.std(ddof=1) / np.sqrt(10)
    assert half_width(ratio(10.0, 1.0), ratio(10.0, 1.3)) == pytest.approx(expected)
    assert half_width(ratio(10.0, 1.0), ratio(12.0, 1.0)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("simulated", "noise", "verdict", "reason"),
    [
        (10.5, 0.1, TRUST, "within the tolerance, sampling error included"),
        (11.5, 0.1, DO_NOT_TRUST, "outside the tolerance, beyond any sampling error"),
        (10.5, 1.0, CANNOT_TELL, "within the tolerance, but the sampling error is larger"),
        (11.5, 1.0, CANNOT_TELL, "outside the tolerance, but perhaps by sampling error"),
    ],
)
def test_a_mean_is_judged_with_its_interval(
    simulated: float, noise: float, verdict: str, reason: str
) -> None:
    judged = judge_mean(ratio(10.0), ratio(simulated, noise), 0.1, 0.0)
    assert (judged.verdict, judged.reason) == (verdict, reason)
    assert judged.error == pytest.approx(simulated / 10.0 - 1.0)


def test_a_difference_too_small_to_judge_by_is_not_trusted() -> None:
    judged = judge_mean(ratio(0.01), ratio(0.4), 0.1, 0.5)
    assert judged.verdict == CANNOT_TELL
    assert judged.reason == "outside the tolerance, but too small to judge by"
    assert judge_mean(ratio(0.01), ratio(0.6), 0.1, 0.5).verdict == DO_NOT_TRUST
    assert judge_mean(ratio(0.0), ratio(0.0), 0.1, 0.5).verdict == TRUST


def test_mostly_idle_blocks_cannot_tell() -> None:
    weights = np.r_[np.full(4, 50.0), np.zeros(6)]
    idle = Ratio(weights * 2.0, weights)
    assert judge_mean(idle, idle, 0.1, 0.0).verdict == CANNOT_TELL
    nothing = Ratio(np.zeros(10), np.zeros(10))
    judged = judge_mean(nothing, nothing, 0.1, 0.0)
    assert (judged.verdict, judged.reason) == (CANNOT_TELL, "nothing was observed")


def test_missing_samples_do_not_pull_a_gauge_to_zero() -> None:
    samples = np.full(41, 4.0)
    samples[5:9] = np.nan
    gauge = Ratio.of_samples(samples, np.arange(0, 41, 4))
    assert gauge.mean == 4.0
    assert gauge.weights.sum() == 36


def histogram(*shares: float, count: float = 1000.0) -> Histogram:
    """Shares up to 20 ms, 40 ms and infinity, alike in every block."""
    rows = np.linspace(0.0, count, 11)[:, None] * np.array([*shares, 1.0])
    return Histogram(np.array([0.020, 0.040, np.inf]), rows, rows[:, -1] * 0.03)


@pytest.mark.parametrize(
    ("measured", "simulated", "simulated_s", "verdict", "reason"),
    [
        # it lies in 20 to 40 ms, and so does the simulated one
        ((0.1, 0.9), (0.1, 0.9), 0.030, CANNOT_TELL, "wider than the tolerance"),
        # just beyond the bucket's end: may still be within the tolerance
        ((0.1, 0.9), (0.0, 0.4), 0.043, CANNOT_TELL, "wider than the tolerance"),
        ((0.1, 0.9), (0.0, 0.0), 0.060, DO_NOT_TRUST, "20.0 ms to 40.0 ms, simulated 60.0 ms"),
        ((0.1, 0.9), (0.9, 1.0), 0.010, DO_NOT_TRUST, "20.0 ms to 40.0 ms, simulated 10.0 ms"),
        ((0.1, 0.4), (0.1, 0.9), 0.030, DO_NOT_TRUST, "> 40.0 ms, simulated 30.0 ms"),
    ],
)
def test_a_quantile_is_judged_as_far_as_its_bucket_can_tell(
    measured: tuple[float, ...],
    simulated: tuple[float, ...],
    simulated_s: float,
    verdict: str,
    reason: str,
) -> None:
    judged = judge_quantile(
        histogram(*measured), histogram(*simulated), simulated_s, 0.5, 0.1, EDGES
    )
    assert judged.verdict == verdict
    assert reason in judged.reason


def test_a_fine_bucket_can_be_trusted() -> None:
    rows = np.linspace(0.0, 1000.0, 11)[:, None] * np.array([0.3, 0.7, 1.0])
    fine = Histogram(np.array([0.029, 0.031, np.inf]), rows, rows[:, -1])
    assert judge_quantile(fine, fine, 0.030, 0.5, 0.1, EDGES).verdict == TRUST


def test_a_tail_needs_observations() -> None:
    few, far = histogram(0.1, 0.999, count=900.0), histogram(0.0, 0.0, count=900.0)
    judged = judge_quantile(few, far, 0.5, 0.99, 0.1, EDGES)
    assert (judged.verdict, judged.reason) == (
        CANNOT_TELL,
        "900 observations leave under 10 beyond it",
    )


def test_shares_that_differ_by_chance_cannot_tell() -> None:
    noisy = histogram(0.1, 0.51)
    rows = noisy.cumulative.copy()
    rows[1:, 1] += np.cumsum(15.0 * NOISE)
    wild = Histogram(noisy.bounds_s, rows, noisy.sums_s)
    judged = judge_quantile(wild, histogram(0.1, 0.49), 0.05, 0.5, 0.1, EDGES)
    assert judged.verdict == CANNOT_TELL
    assert judged.reason.endswith("perhaps by sampling error")


def test_a_peak_needs_scrapes() -> None:
    many, other = np.full(300, 10.0), np.full(300, 13.0)
    assert judge_peak(many, many, 0.2, 0.0).verdict == TRUST
    assert judge_peak(many, other, 0.2, 0.0).verdict == DO_NOT_TRUST
    assert judge_peak(many, other, 0.2, 4.0).verdict == CANNOT_TELL
    assert judge_peak(many[:199], other[:199], 0.2, 0.0).verdict == CANNOT_TELL
