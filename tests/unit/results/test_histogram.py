"""The histogram agrees with exact quantiles within its stated error, in any order."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.sim.results.histogram import LogHistogram

gaps = st.lists(st.tuples(st.floats(1e-5, 9e3), st.integers(1, 300)), min_size=1, max_size=60)


def exact_quantile(pairs: list[tuple[float, int]], q: float) -> float:
    values = np.sort(np.repeat([v for v, _ in pairs], [w for _, w in pairs]))
    return float(values[max(1, int(np.ceil(q * len(values)))) - 1])


@settings(max_examples=60, deadline=None)
@given(gaps, st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]))
def test_quantiles_are_within_half_a_bin(pairs: list[tuple[float, int]], q: float) -> None:
    histogram = LogHistogram()
    for value, weight in pairs:
        histogram.add_one(value, weight)
    assert histogram.quantile(q) == pytest.approx(exact_quantile(pairs, q), rel=0.00501)
    assert histogram.count == sum(w for _, w in pairs)
    total_s = sum(v * w for v, w in pairs)
    assert abs(histogram.sum_s - total_s) <= histogram.count * 2.0**-41 + 1e-12 * total_s


@settings(max_examples=30, deadline=None)
@given(gaps, gaps)
def test_order_and_merging_change_nothing(
    first: list[tuple[float, int]], second: list[tuple[float, int]]
) -> None:
    straight, backwards, other = LogHistogram(), LogHistogram(), LogHistogram()
    for value, weight in first + second:
        straight.add_one(value, weight)
    for value, weight in reversed(first):
        backwards.add_one(value, weight)
    for value, weight in second:
        other.add_one(value, weight)
    backwards.merge(other)
    assert straight.sum_s == backwards.sum_s
    for mine, theirs in zip(straight.bins(), backwards.bins(), strict=True):
        assert mine.tolist() == theirs.tolist()


def test_a_run_of_steps_equals_its_steps_one_by_one() -> None:
    steps_s = np.linspace(0.006, 0.009, 10_000)
    run, single = LogHistogram(), LogHistogram()
    run.add(steps_s, 37)
    for step_s in steps_s.tolist():
        single.add_one(step_s, 37)
    assert run.sum_s == single.sum_s
    assert run.bins()[2].tolist() == single.bins()[2].tolist()
    assert run.mean_s == pytest.approx(0.0075)


def test_each_duration_may_have_its_own_weight() -> None:
    rng = np.random.default_rng(3)
    steps_s, decodes = rng.gamma(4.0, 0.003, 5000), rng.integers(1, 200, 5000)
    run, single = LogHistogram(), LogHistogram()
    run.add(steps_s, decodes)
    for step_s, weight in zip(steps_s.tolist(), decodes.tolist(), strict=True):
        single.add_one(step_s, weight)
    assert run.count == decodes.sum()
    assert run.sum_s == single.sum_s
    assert run.bins()[2].tolist() == single.bins()[2].tolist()
    with pytest.raises(ValueError, match="5000 durations, 4999 weights"):
        run.add(steps_s, decodes[1:])
    assert run.count == decodes.sum()


def test_empty_is_nan_not_zero() -> None:
    histogram = LogHistogram()
    assert histogram.count == 0
    assert isnan(histogram.quantile(0.5))
    assert isnan(histogram.mean_s)
    assert isnan(histogram.maximum_s)


def test_outside_the_bins_nothing_is_lost() -> None:
    histogram = LogHistogram()
    histogram.add(np.array([0.0, 1e-9, 5e4]), 2)
    assert histogram.count == 6
    assert histogram.quantile(0.5) == 0.0
    assert histogram.quantile(1.0) == 5e4
    lower_s, upper_s, counts = histogram.bins()
    assert (lower_s[0], upper_s[-1], counts.tolist()) == (0.0, np.inf, [4, 2])


def test_one_value_comes_back_exactly() -> None:
    histogram = LogHistogram()
    histogram.add_one(0.0123, 1000)
    assert histogram.quantile(0.5) == 0.0123
    assert histogram.maximum_s == 0.0123


def test_every_bin_is_about_one_percent_wide() -> None:
    histogram = LogHistogram()
    histogram.add(np.geomspace(1.01e-5, 9.9e3, 50_000))
    lower_s, upper_s, _ = histogram.bins()
    assert np.all(upper_s / lower_s < 1.01)
    assert np.allclose(lower_s[1:], upper_s[:-1], rtol=1e-15)
