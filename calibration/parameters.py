"""The numbers that price one engine step, checked once so that the evaluator need not check."""

from dataclasses import dataclass, fields
from itertools import pairwise
from math import isfinite
from typing import Literal

from fleetsim.traces.errors import InputError

SchedulingMode = Literal["async", "sync"]


@dataclass(frozen=True, slots=True)
class StepCostParameters:
    """GPU seconds of one step, as a function of what the step computes.

    With ``T`` = prefill + decode tokens, ``n_d`` decodes whose contexts sum to ``KV_d`` tokens
    before the step, and prefill chunks of ``c`` tokens at context ``p``::

        t_gpu = constant_s + [n_d > 0] decode_s + [n_p > 0] prefill_s + tokens_s(T)
              + per_decode_s * n_d + per_decode_kv_token_s * KV_d
              + per_prefill_square_s * sum(c * c / 2) + per_prefill_context_s * sum(c * p)
              + [n_p > 0] per_mixed_kv_token_s * KV_d

    ``tokens_s`` is piecewise linear from ``tokens_s(0) = 0``: each token between
    ``token_knots[j]`` and the next knot costs ``token_slopes_s[j]``, and the last slope goes on
    for ever. No number is negative, so a step that does more never costs less.

    Raises:
        InputError: a number is negative or not finite, knots do not rise from 0, or slopes and
            knots differ in length.
    """

    constant_s: float = 0.0
    decode_s: float = 0.0
    prefill_s: float = 0.0
    token_knots: tuple[int, ...] = (0,)
    token_slopes_s: tuple[float, ...] = (0.0,)
    per_decode_s: float = 0.0
    per_decode_kv_token_s: float = 0.0
    per_prefill_square_s: float = 0.0
    per_prefill_context_s: float = 0.0
    per_mixed_kv_token_s: float = 0.0
    """What a decode's context costs more beside a prefill: many attention kernels then read it
    with the prefill's tiles, and lose the split of a long context over the whole GPU."""

    def __post_init__(self) -> None:
        _require_non_negative(self, skip=("token_knots", "token_slopes_s"))
        knots, slopes = self.token_knots, self.token_slopes_s
        if not knots or knots[0] != 0 or any(b <= a for a, b in pairwise(knots)):
            raise InputError(f"token_knots: must rise from 0, got {list(knots)}")
        if len(slopes) != len(knots):
            raise InputError(
                f"token_slopes_s: {len(slopes)} slopes for {len(knots)} token_knots; "
                "give one for each"
            )
        if not all(isfinite(slope) and slope >= 0 for slope in slopes):
            raise InputError(f"token_slopes_s: must be finite and >= 0, got {list(slopes)}")


@dataclass(frozen=True, slots=True)
class HostWork:
    """CPU seconds that the engine spends around each step, over ``n`` sequences in the batch.

    ``base_s + per_seq_s * n`` is work that asynchronous scheduling hides behind the GPU and
    synchronous scheduling adds to it; ``residue_s + residue_per_seq_s * n`` is added in both.
    ``n`` is held at ``fitted_seqs``, the largest batch the numbers were seen at: beyond it the
    per-sequence cost is unknown and is not extrapolated.

    Raises:
        InputError: a number is negative or not finite.
    """

    base_s: float = 0.0
    per_seq_s: float = 0.0
    residue_s: float = 0.0
    residue_per_seq_s: float = 0.0
    fitted_seqs: int = 0

    def __post_init__(self) -> None:
        _require_non_negative(self)


def _require_non_negative(
    numbers: StepCostParameters | HostWork, skip: tuple[str, ...] = ()
) -> None:
    for field in fields(numbers):
        if field.name in skip:
            continue
        value = getattr(numbers, field.name)
        if not isfinite(value) or value < 0:
            raise InputError(f"{field.name}: must be a finite number >= 0, got {value}")
