"""What a loader hands over: rows in file order, each value right in itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetsim.traces.schema import Categorical, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """Block ids of all rows: ``lengths[i]`` ids for row i, one row after another in ``ids``.

    Attributes:
        lengths: int64, ids per row.
        ids: uint64.
        block_tokens: prompt tokens that one id covers.
    """

    lengths: IntArray
    ids: npt.NDArray[np.uint64]
    block_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows as a file states them, before any is dropped or moved.

    Attributes:
        stamps: arrival on the file's own clock, integer ticks or float seconds.
        ticks_per_s: of that clock; 1 for seconds.
        prompt_tokens: at least 0.
        output_tokens: at least 0.
        line_numbers: 1-based line (in Parquet: row) of each row.
        t0_iso: tells the wall-clock time of a stamp; None where the file does not say.
        chains: block ids, None where the format has none.
        parent: index of the row whose answer this one waits for, -1 for none.
        think_s: seconds from that answer to this request; NaN where it comes at its own time.
        source_row: original position, where the file is itself a copy of a trace.
        warnings: for the reader of results.
    """

    stamps: IntArray | FloatArray
    ticks_per_s: int
    prompt_tokens: IntArray
    output_tokens: IntArray
    line_numbers: IntArray
    t0_iso: Callable[[int], str] | None = None
    chains: Chains | None = None
    max_tokens: IntArray | None = None
    turn: IntArray | None = None
    priority: IntArray | None = None
    session: Categorical | None = None
    tenant: Categorical | None = None
    model: Categorical | None = None
    slo_class: Categorical | None = None
    adapter: Categorical | None = None
    kind: Categorical | None = None
    parent: IntArray | None = None
    think_s: FloatArray | None = None
    source_row: IntArray | None = None
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.stamps)
