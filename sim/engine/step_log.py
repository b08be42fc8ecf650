"""The durations of an engine's steps, which are the gaps between the tokens of its decodes."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fleetsim.sim.engine.decode_run import DecodeRun

Sink = Callable[[npt.NDArray[np.float64], npt.NDArray[np.int64]], None]
"""Takes the duration and the number of decodes of many steps."""

_FLUSH_NUMBERS = 4 * 4096


class StepLog:
    """Keeps steps as (base, slope, steps, decodes) until they are worth a flush.

    Step k of an entry, from 0, takes base + slope * k seconds.
    """

    __slots__ = ("_numbers", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._numbers = array("d")

    def add_step(self, duration_s: float, n_decodes: int) -> None:
        """A step by itself, with a decode in it."""
        self._numbers.extend((duration_s, 0.0, 1, n_decodes))
        if len(self._numbers) >= _FLUSH_NUMBERS:
            self.flush()

    def add_run(self, run: DecodeRun, steps: int) -> None:
        """The first steps of a run."""
        n_flat = run.n_flat
        if n_flat:
            flat = steps if steps < n_flat else int(n_flat)
            self._numbers.extend((run.flat_s, 0.0, flat, run.n_decodes))
            steps -= flat
        if steps:
            self._numbers.extend((run.base_s, run.slope_s, steps, run.n_decodes))
        if len(self._numbers) >= _FLUSH_NUMBERS:
            self.flush()

    def flush(self) -> None:
        """Hand all steps in which anything decoded to the sink."""
        if not self._numbers:
            return
        numbers = np.frombuffer(self._numbers).reshape(-1, 4)
        self._numbers = array("d")
        base_s, slope_s = numbers[:, 0], numbers[:, 1]
        steps, n_decodes = numbers[:, 2:].astype(np.int64).T
        index = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
        durations_s = np.repeat(base_s, steps) + np.repeat(slope_s, steps) * index
        self._sink(durations_s, np.repeat(n_decodes, steps))
