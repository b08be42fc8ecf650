"""Our least squares against scipy's."""

import numpy as np
import pytest
from scipy.optimize import nnls

from fleetsim.calibration.nnls import non_negative_least_squares


@pytest.mark.parametrize("seed", range(20))
def test_the_residual_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 12)) * 10.0 ** rng.integers(-6, 3, 12)
    rows[:, 3] = 0.0
    targets = rng.normal(size=60)
    ours = non_negative_least_squares(rows, targets)
    _, residual = nnls(rows / np.maximum(np.linalg.norm(rows, axis=0), 1e-300), targets)
    assert (ours >= 0).all()
    assert ours[3] == 0.0
    assert np.linalg.norm(rows @ ours - targets) == pytest.approx(residual, rel=1e-9)
