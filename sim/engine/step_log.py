"""The durations of an engine's steps, which are the gaps between the tokens of its decodes."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import numpy as np
import numpy.typing as npt

from fleetsim.sim.engine.decode_run import DecodeRun

Sink = Callable[[npt.NDArray[np.float64], npt.NDArray[np.int64]], None]
"""Takes the duration and the number of decodes of many steps."""

_ENTRY = np.dtype([("base_s", "f8"), ("slope_s", "f8"), ("steps", "i8"), ("n_decodes", "i8")])
_pack = Struct("=ddqq").pack
_FLUSH_BYTES = 4096 * _ENTRY.itemsize


class StepLog:
    """Keeps steps as packed entries until they are worth a flush.

    Step k of an entry, from 0, takes base_s + slope_s * k seconds.
    """

    __slots__ = ("_entries", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._entries = bytearray()

    def add_step(self, duration_s: float, n_decodes: int) -> None:
        """A step by itself, with a decode in it."""
        self._entries += _pack(duration_s, 0.0, 1, n_decodes)
        if len(self._entries) >= _FLUSH_BYTES:
            self.flush()

    def add_run(self, run: DecodeRun, steps: int) -> None:
        """The first steps of a run."""
        n_flat = run.n_flat
        if n_flat:
            flat = steps if steps < n_flat else int(n_flat)
            self._entries += _pack(run.flat_s, 0.0, flat, run.n_decodes)
            steps -= flat
        if steps:
            self._entries += _pack(run.base_s, run.slope_s, steps, run.n_decodes)
        if len(self._entries) >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand all steps to the sink."""
        if not self._entries:
            return
        entries = np.frombuffer(self._entries, _ENTRY)
        self._entries = bytearray()
        steps = entries["steps"]
        index = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
        durations_s = np.repeat(entries["base_s"], steps)
        durations_s += np.repeat(entries["slope_s"], steps) * index
        self._sink(durations_s, np.repeat(entries["n_decodes"], steps))
