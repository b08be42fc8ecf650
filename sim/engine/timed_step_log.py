"""A step log that also keeps when steps ended, for time series of inter-token latency."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import numpy as np
import numpy.typing as npt

from fleetsim.sim.clock import Clock
from fleetsim.sim.engine.decode_run import DecodeRun
from fleetsim.sim.engine.step_log import Sink, StepLog

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ENTRY = np.dtype(
    [("start_s", "f8"), ("base_s", "f8"), ("slope_s", "f8"), ("steps", "i8"), ("n_decodes", "i8")]
)
_pack = Struct("=dddqq").pack
_STEPS_AT_ONCE = 1 << 20


class TimedStepLog(StepLog):
    """Does what a step log does, and keeps one entry more a run of steps, to the end.

    Args:
        clock: tells when a step by itself begins, which is when it is logged.
        sink: as a step log's.
    """

    __slots__ = ("_clock", "_timed")

    def __init__(self, clock: Clock, sink: Sink) -> None:
        super().__init__(sink)
        self._clock = clock
        self._timed = bytearray()

    def add_step(self, duration_s: float, n_decodes: int) -> None:
        """A step by itself, which begins now."""
        self._timed += _pack(self._clock.now, duration_s, 0.0, 1, n_decodes)
        super().add_step(duration_s, n_decodes)

    def add_run(self, run: DecodeRun, steps: int) -> None:
        """The first steps of a run."""
        flat = min(steps, int(min(run.n_flat, steps)))
        if flat:
            self._timed += _pack(run.start_s, run.flat_s, 0.0, flat, run.n_decodes)
        if steps > flat:
            start_s = run.end_s(flat)
            self._timed += _pack(start_s, run.base_s, run.slope_s, steps - flat, run.n_decodes)
        super().add_run(run, steps)

    def steps(self) -> Iterator[tuple[Floats, Floats, Ints]]:
        """All steps with decodes in them: when they ended, how long they took, their decodes.

        In parts of about a million steps; the order is that in which they were logged.
        """
        entries = np.frombuffer(bytes(self._timed), _ENTRY)
        parts = np.cumsum(entries["steps"]) // _STEPS_AT_ONCE
        for part in np.unique(parts):
            some = entries[parts == part]
            count = some["steps"]
            index = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            base_s, slope_s = np.repeat(some["base_s"], count), np.repeat(some["slope_s"], count)
            took_s = base_s + slope_s * index
            done = index + 1.0
            end_s = np.repeat(some["start_s"], count) + (
                done * base_s + slope_s * (done * index * 0.5)
            )
            yield end_s, took_s, np.repeat(some["n_decodes"], count)
