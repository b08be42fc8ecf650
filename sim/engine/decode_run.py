"""Decode steps of the same sequences: when each of them ends, in closed form.

Each such step adds one context token per sequence, so durations grow by a constant from step to
step, after a first stretch in which the host's work is the longer one. That makes the end of the
j-th step a quadratic in j: a leap over a thousand steps costs what a leap over two does, and is
exact, because a step taken alone asks the same run for its end.
"""

from __future__ import annotations

from math import ceil, inf, sqrt

# Times are good to 1e-11 s in a day, and a step takes 1e-5 s at least: to 1e-6 steps.
_CLOSE = 1e-3


class DecodeRun:
    """A run of decode-only steps that begins at `start_s`.

    Step k (from 0) takes max(constant + per_token * (kv + k * n), floor) + extra seconds; the
    terms are those of `StepCost.decode_terms`.

    Attributes:
        n_decodes: sequences that decode, n.
        kv_tokens: their computed tokens before the first step.
        n_flat: steps whose duration is the host's, `flat_s`.
        base_s, slope_s: after them, step k takes base_s + slope_s * (k - n_flat).
    """

    __slots__ = (
        "_grown_s",
        "base_s",
        "flat_s",
        "kv_tokens",
        "n_decodes",
        "n_flat",
        "slope_s",
        "start_s",
    )

    def __init__(
        self,
        start_s: float,
        n_decodes: int,
        kv_tokens: int,
        terms: tuple[float, float, float, float],
    ) -> None:
        constant, per_token, floor, extra = terms
        self.start_s = start_s
        self.n_decodes = n_decodes
        self.kv_tokens = kv_tokens
        self.slope_s = slope_s = per_token * n_decodes
        gpu_s = constant + per_token * kv_tokens
        self.flat_s = floor + extra
        if gpu_s >= floor:
            self.n_flat = 0.0
            self.base_s = gpu_s + extra
            self._grown_s = start_s
            return
        if slope_s <= 0.0:
            self.n_flat = inf
            self.base_s = self.flat_s
            self._grown_s = inf
            return
        n_flat = float(ceil((floor - gpu_s) / slope_s))
        self.n_flat = n_flat
        self.base_s = max(gpu_s + slope_s * n_flat, floor) + extra
        self._grown_s = start_s + n_flat * self.flat_s

    def end_s(self, steps: int) -> float:
        """When that many steps have been done."""
        k = steps - self.n_flat
        if k <= 0:
            return self.start_s + steps * self.flat_s
        return self._grown_s + (k * self.base_s + self.slope_s * (k * (k - 1) * 0.5))

    def steps_by(self, time_s: float) -> int:
        """How many steps have ended at `time_s` or before."""
        steps = self._steps(time_s)
        whole = int(steps)
        if _CLOSE < steps - whole < 1.0 - _CLOSE:
            return whole
        # So near a whole number, rounding may have moved it across.
        while self.end_s(whole + 1) <= time_s:
            whole += 1
        while whole > 0 and self.end_s(whole) > time_s:
            whole -= 1
        return whole

    def steps_before(self, time_s: float) -> int:
        """How many steps have ended before `time_s`."""
        steps = self._steps(time_s)
        whole = int(steps)
        if _CLOSE < steps - whole < 1.0 - _CLOSE:
            return whole
        while self.end_s(whole + 1) < time_s:
            whole += 1
        while whole > 0 and self.end_s(whole) >= time_s:
            whole -= 1
        return whole

    def _steps(self, time_s: float) -> float:
        """The same, but for rounding, as a real number that grows steadily with time."""
        elapsed_s = time_s - self._grown_s
        if elapsed_s < 0.0:
            return (time_s - self.start_s) / self.flat_s
        # The root of k * base + slope * k * (k - 1) / 2 = elapsed, in the form that does not
        # cancel when the slope is small.
        half = self.base_s - 0.5 * self.slope_s
        root = 2.0 * elapsed_s / (half + sqrt(half * half + 2.0 * self.slope_s * elapsed_s))
        return self.n_flat + root
