"""Least squares without negative coefficients: scipy's, with columns brought to one scale."""

import numpy as np
import numpy.typing as npt

from fleetsim.traces.errors import InputError

Floats = npt.NDArray[np.float64]


def non_negative_least_squares(rows: Floats, targets: Floats) -> Floats:
    """The ``x >= 0`` with the least ``|rows @ x - targets|``.

    Args:
        rows: one observation a row, one coefficient a column.
        targets: one number a row.

    Raises:
        InputError: scipy is not installed; only fitting needs it, so it is an extra.
    """
    try:
        from scipy.optimize import nnls
    except ImportError as error:
        raise InputError(
            "scipy is not installed; fitting needs the extra: pip install 'fleetsim[calibrate]'"
        ) from error
    # Equal column norms keep the solver's tolerance meaningful for seconds a token and a step.
    norms = np.linalg.norm(rows, axis=0)
    norms[norms == 0.0] = 1.0  # an empty column keeps its zero
    solution, _ = nnls(rows / norms, targets, maxiter=100 * rows.shape[1])
    result: Floats = solution / norms
    return result
