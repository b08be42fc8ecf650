"""Lists of unequal length, one behind another in a flat array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]


def lay_runs(starts: _Ints, lengths: _Ints) -> tuple[_Ints, _Ints]:
    """Pick runs of a flat array, to lay them end to end.

    Args:
        starts: where each run begins.
        lengths: how many entries it has.

    Returns:
        The offsets of the runs laid out, one more than there are runs, and the places to pick.
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return offsets, np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
