"""The durations of an engine's steps, which are the gaps between the tokens of its decodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fleetsim.sim.engine.decode_run import DecodeRun

Sink = Callable[[npt.NDArray[np.float64], npt.NDArray[np.int64]], None]
"""Takes the duration and the number of decodes of many steps."""

_FLUSH_ENTRIES = 4096


class StepLog:
    """Keeps steps as (base, slope, first index, steps, decodes) until they are worth a flush.

    A step's duration is base + slope * index, whichever entry it stands in, so that it does not
    matter where a leap was cut.
    """

    __slots__ = ("_entries", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._entries: list[tuple[float, float, int, int, int]] = []

    def add_step(self, duration_s: float, n_decodes: int) -> None:
        """A step with a prefill in it."""
        self._entries.append((duration_s, 0.0, 0, 1, n_decodes))
        if len(self._entries) >= _FLUSH_ENTRIES:
            self.flush()

    def add_run(self, run: DecodeRun, first: int, steps: int) -> None:
        """Steps first, first + 1, ... of a run."""
        flat = run.n_flat - first
        if flat > 0:
            if flat > steps:
                flat = steps
            flat = int(flat)
            self._entries.append((run.flat_s, 0.0, 0, flat, run.n_decodes))
            first, steps = first + flat, steps - flat
        if steps:
            index = first - int(run.n_flat)
            self._entries.append((run.base_s, run.slope_s, index, steps, run.n_decodes))
        if len(self._entries) >= _FLUSH_ENTRIES:
            self.flush()

    def flush(self) -> None:
        """Hand all steps in which anything decoded to the sink."""
        entries = [entry for entry in self._entries if entry[4]]
        self._entries = []
        if not entries:
            return
        base_s, slope_s, first, steps, n_decodes = (np.array(c) for c in zip(*entries, strict=True))
        starts = np.cumsum(steps) - steps
        index = np.arange(steps.sum()) + np.repeat(first - starts, steps)
        durations_s = np.repeat(base_s, steps) + np.repeat(slope_s, steps) * index
        self._sink(durations_s, np.repeat(n_decodes, steps))
