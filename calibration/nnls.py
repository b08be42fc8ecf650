"""Least squares without negative coefficients, in numpy alone.

Lawson and Hanson's active set (Solving Least Squares Problems, 1974, chapter 23): coefficients
enter one at a time where they reduce the error most, and leave when the rest pushes them below
zero. With some thirty columns that is instant, and a user's own fit needs no scipy.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_TOLERANCE = 1e-10


def non_negative_least_squares(rows: Floats, targets: Floats) -> Floats:
    """The ``x >= 0`` with the least ``|rows @ x - targets|``.

    Args:
        rows: one observation a row, one coefficient a column.
        targets: one number a row.
    """
    norms = np.linalg.norm(rows, axis=0)
    norms[norms == 0.0] = 1.0  # an empty column keeps its zero
    a = rows / norms  # equal norms, so that one tolerance fits all
    gram, right = a.T @ a, a.T @ targets
    x = np.zeros(a.shape[1])
    inside = np.zeros(len(x), dtype=bool)
    scale = float(np.abs(right).max(initial=0.0)) or 1.0
    for _ in range(10 * len(x)):
        gradient = right - gram @ x
        gradient[inside] = -np.inf
        best = int(gradient.argmax())
        if gradient[best] <= _TOLERANCE * scale:
            break
        inside[best] = True
        while True:
            trial = np.zeros(len(x))
            trial[inside] = np.linalg.lstsq(a[:, inside], targets, rcond=None)[0]
            below = inside & (trial <= 0.0)
            if not below.any():
                x = trial
                break
            steps = x[below] / np.maximum(x[below] - trial[below], 1e-300)
            x = x + float(steps.min()) * (trial - x)
            inside &= x > _TOLERANCE
            x[~inside] = 0.0
            if not inside.any():
                break
    result: Floats = x / norms
    return result
