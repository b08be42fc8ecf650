"""What one engine step costs in seconds, for a single step and for a run of decode steps.

The form and its coefficients are explained in ``docs/calibration.md``. The step's period is

* ``async``: ``max(t_gpu, host) + residue``, host work hides behind the GPU;
* ``sync``: ``t_gpu + host + residue``.

Both are evaluated as ``max(t_gpu, floor) + extra``, so that the engine needs one expression.
The scalar and the vectorised path do the same float operations in the same order: a leap over
many decode steps gives, bit for bit, the durations of the steps taken one by one.
"""

from bisect import bisect_right
from typing import get_args

import numpy as np
import numpy.typing as npt

from fleetsim.calibration.parameters import HostWork, SchedulingMode, StepCostParameters
from fleetsim.calibration.profile import Profile
from fleetsim.traces.errors import InputError

__all__ = ["HostWork", "SchedulingMode", "StepCost", "StepCostParameters"]

DecodeTerms = tuple[float, float, float, float]


class StepCost:
    """Prices the steps of one engine configuration; shared by all replicas of a pool.

    Context is counted before the step: a decode whose sequence has ``k`` tokens computed adds
    ``k`` to ``kv_tokens``, and a prefill chunk of ``c`` tokens at ``p`` computed tokens adds
    ``c * c / 2`` to ``prefill_sq`` and ``c * p`` to ``prefill_ctx``.

    Args:
        parameters: GPU seconds of a step.
        host: CPU seconds around a step; none by default.
        mode: ``async`` or ``sync`` scheduling.
        factors: on the seconds of steps that only decode, and of all others; what is not known
            of a profile, see `fleetsim.calibration.uncertainty`.

    Raises:
        InputError: the mode is unknown, or a step of one token would take no time.
    """

    __slots__ = (
        "_context_s",
        "_decode_factor",
        "_decode_s",
        "_decode_terms",
        "_host",
        "_knot_s",
        "_knots",
        "_kv_token_s",
        "_mixed_kv_token_s",
        "_per_decode_s",
        "_prefill_factor",
        "_prefill_s",
        "_slopes_s",
        "_square_s",
        "mode",
    )

    def __init__(
        self,
        parameters: StepCostParameters,
        host: HostWork | None = None,
        mode: SchedulingMode = "async",
        factors: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        if mode not in get_args(SchedulingMode):
            raise InputError(f"scheduling mode {mode!r} is unknown; use async or sync")
        self.mode = mode
        self._host = host or HostWork()
        self._knots = list(parameters.token_knots)
        self._slopes_s = list(parameters.token_slopes_s)
        # Seconds at each knot, chained from the one before, so that segments join without a dip.
        self._knot_s = [parameters.constant_s]
        for i in range(1, len(self._knots)):
            width = self._knots[i] - self._knots[i - 1]
            self._knot_s.append(self._knot_s[-1] + self._slopes_s[i - 1] * width)
        self._decode_factor, self._prefill_factor = factors
        self._decode_s = parameters.decode_s
        self._prefill_s = parameters.prefill_s
        self._per_decode_s = parameters.per_decode_s
        self._kv_token_s = parameters.per_decode_kv_token_s
        self._mixed_kv_token_s = parameters.per_mixed_kv_token_s
        self._square_s = parameters.per_prefill_square_s
        self._context_s = parameters.per_prefill_context_s
        self._decode_terms: list[DecodeTerms] = []
        if self.decode_step_s(1, 0) <= 0.0 or self.step_s(0, 0, 1, 1, 0.5, 0) <= 0.0:
            raise InputError(
                "step cost: a step of one token takes no time; give a positive constant, "
                "slope or host work"
            )

    @classmethod
    def linear(
        cls,
        constant_s: float = 0.0,
        per_token_s: float = 0.0,
        per_decode_kv_token_s: float = 0.0,
        host: HostWork | None = None,
        mode: SchedulingMode = "async",
    ) -> "StepCost":
        """A step cost of few terms, for tests and closed forms of queueing theory.

        ``constant_s`` alone gives steps of equal length; ``per_token_s`` alone makes the service
        time of a prompt proportional to its tokens.
        """
        return cls(
            StepCostParameters(
                constant_s=constant_s,
                token_slopes_s=(per_token_s,),
                per_decode_kv_token_s=per_decode_kv_token_s,
            ),
            host,
            mode,
        )

    @classmethod
    def from_profile(
        cls,
        profile: Profile,
        mode: SchedulingMode = "async",
        engine_version: str | None = None,
        factors: tuple[float, float] = (1.0, 1.0),
    ) -> "StepCost":
        """The step cost of a calibrated profile under one scheduling mode.

        Of its host work, the record nearest to the engine's version is taken; without one, the
        newest.
        """
        if mode not in get_args(SchedulingMode):
            raise InputError(f"scheduling mode {mode!r} is unknown; use async or sync")
        host = profile.host_work_for(mode, engine_version).work
        return cls(profile.step_cost, host, mode, factors)

    def decode_terms(self, n_decodes: int) -> DecodeTerms:
        """``(gpu_const_s, gpu_per_kv_token_s, floor_s, extra_s)`` of steps of n_decodes decodes.

        The step takes ``max(gpu_const_s + gpu_per_kv_token_s * kv_tokens, floor_s) + extra_s``.
        Under ``async`` the floor is the host work and the extra its residue; under ``sync`` the
        floor is 0 and the extra is both.
        """
        known = self._decode_terms
        while len(known) <= n_decodes:
            n = len(known)
            gpu_const_s = self._tokens_s(n) + self._decode_s + self._per_decode_s * n
            floor_s, extra_s = self._host_terms(n)
            factor = self._decode_factor
            known.append(
                (
                    gpu_const_s * factor,
                    self._kv_token_s * factor,
                    floor_s * factor,
                    extra_s * factor,
                )
            )
        return known[n_decodes]

    def decode_step_s(self, n_decodes: int, kv_tokens: int) -> float:
        """Seconds of a step of ``n_decodes`` >= 1 decodes over ``kv_tokens`` computed tokens."""
        gpu_const_s, gpu_per_kv_token_s, floor_s, extra_s = self.decode_terms(n_decodes)
        gpu_s = gpu_const_s + gpu_per_kv_token_s * kv_tokens
        return (gpu_s if gpu_s > floor_s else floor_s) + extra_s

    def decode_run_s(self, n_decodes: int, kv_tokens: int, steps: int) -> npt.NDArray[np.float64]:
        """Seconds of each of ``steps`` successive decode-only steps of the same sequences.

        The context grows by ``n_decodes`` tokens a step. Bit-identical to ``decode_step_s``
        called step by step.
        """
        gpu_const_s, gpu_per_kv_token_s, floor_s, extra_s = self.decode_terms(n_decodes)
        kv_of_steps = np.arange(kv_tokens, kv_tokens + n_decodes * steps, n_decodes)
        run_s = kv_of_steps.astype(np.float64)
        run_s *= gpu_per_kv_token_s
        run_s += gpu_const_s
        if (
            steps and run_s[0] < floor_s
        ):  # steps grow longer, so later ones may still be above the floor
            np.maximum(run_s, floor_s, out=run_s)
        run_s += extra_s
        return run_s

    def step_s(
        self,
        n_decodes: int,
        kv_tokens: int,
        prefill_tokens: int,
        n_prefills: int,
        prefill_sq: float,
        prefill_ctx: float,
    ) -> float:
        """Seconds of any step: ``n_decodes`` decodes and ``n_prefills`` chunks.

        Args:
            n_decodes: sequences that take one token each.
            kv_tokens: their computed tokens, summed.
            prefill_tokens: tokens of all chunks.
            n_prefills: number of chunks.
            prefill_sq: sum of ``c * c / 2`` over chunks of ``c`` tokens.
            prefill_ctx: sum of ``c * p`` over chunks at ``p`` computed tokens.
        """
        if not n_prefills:
            return self.decode_step_s(n_decodes, kv_tokens)
        # In the order of a decode step, so that adding a chunk cannot lose a rounding error.
        gpu_s = self._tokens_s(n_decodes + prefill_tokens)
        if n_decodes:
            gpu_s += self._decode_s
            gpu_s += self._per_decode_s * n_decodes
            gpu_s += self._kv_token_s * kv_tokens
        gpu_s += self._prefill_s
        gpu_s += self._square_s * prefill_sq
        gpu_s += self._context_s * prefill_ctx
        gpu_s += self._mixed_kv_token_s * kv_tokens
        floor_s, extra_s = self._host_terms(n_decodes + n_prefills)
        return ((gpu_s if gpu_s > floor_s else floor_s) + extra_s) * self._prefill_factor

    def _tokens_s(self, tokens: int) -> float:
        """GPU seconds of everything that depends on the step's token count alone."""
        i = bisect_right(self._knots, tokens) - 1
        return self._knot_s[i] + self._slopes_s[i] * (tokens - self._knots[i])

    def _host_terms(self, n_seqs: int) -> tuple[float, float]:
        host = self._host
        seqs = n_seqs if n_seqs < host.fitted_seqs else host.fitted_seqs
        hidden_s = host.base_s + host.per_seq_s * seqs
        residue_s = host.residue_s + host.residue_per_seq_s * seqs
        return (hidden_s, residue_s) if self.mode == "async" else (0.0, hidden_s + residue_s)
