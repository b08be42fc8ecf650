"""Least squares without negative coefficients, whatever the columns' scales."""

import numpy as np
import pytest

from fleetsim.calibration.nnls import non_negative_least_squares


@pytest.mark.parametrize("seed", range(10))
def test_the_solution_does_not_depend_on_the_columns_scales(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 12))
    targets = rng.normal(size=60)
    plain = non_negative_least_squares(rows, targets)
    scales = 10.0 ** rng.integers(-9, 6, 12)
    scaled = non_negative_least_squares(rows * scales, targets)
    assert (scaled >= 0).all()
    assert 0 < (plain == 0).sum() < 12
    np.testing.assert_allclose(scaled * scales, plain, rtol=1e-6, atol=1e-9)


def test_an_empty_column_gets_nothing() -> None:
    rows = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert non_negative_least_squares(rows, np.array([3.0, 6.0])).tolist() == pytest.approx([3, 0])
