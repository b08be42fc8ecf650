"""Numbers in place of labels, counted from 0 by first appearance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleetsim.traces.schema import IntArray


def by_first_appearance(labels: npt.NDArray[np.integer]) -> tuple[IntArray, IntArray]:
    """Number labels in the order in which they first appear.

    Returns:
        The number of each entry, and for each number the place of its first entry.
    """
    _, first, number = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[number.reshape(-1)].astype(np.int64), first[order].astype(np.int64)
