"""The batches that a fit is made from and scored on: drawn once from a seed, spread over scales."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from fleetsim.calibration.profile import Validity
from fleetsim.calibration.step_table import REGIONS, Floats, StepTable


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step to be priced: like decodes, and like prefill chunks."""

    n_decodes: int
    kv_tokens: int
    """Computed tokens of all decodes together, before the step."""
    n_prefills: int
    chunk_tokens: int
    context_tokens: int
    """Computed tokens of each prefilling sequence, before its chunk."""

    @property
    def tokens(self) -> int:
        """Tokens that the step computes."""
        return self.n_decodes + self.n_prefills * self.chunk_tokens

    @property
    def region(self) -> str:
        """``decode``, ``prefill`` or ``mixed``."""
        if not self.n_prefills:
            return "decode"
        return "mixed" if self.n_decodes else "prefill"


def priced(batches: Sequence[StepBatch], seconds: Floats) -> StepTable:
    """The batches as steps that took so long."""
    n_d, kv, n_p, c, p = np.array([astuple(batch) for batch in batches], dtype=np.float64).T
    return StepTable(
        n_decodes=n_d,
        kv_tokens=kv,
        n_prefills=n_p,
        prefill_tokens=n_p * c,
        prefill_square=n_p * c * c / 2,
        prefill_context=n_p * c * p,
        longest_context=np.maximum(np.ceil(kv / np.maximum(n_d, 1)) + np.sign(n_d), p + c),
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True)
class _LogUniform:
    """Whole numbers whose logarithm is uniform: as many draws from 10 to 100 as to 1,000."""

    low: int
    high: int

    def draw(self, rng: np.random.Generator) -> int:
        return int(np.exp(rng.uniform(np.log(self.low), np.log(self.high + 0.99))))


USUAL_CONTEXT_TOKENS = 16_384
"""Two steps in three have contexts up to this, so that rare long ones do not steer the fit."""


def draw_batches(
    rng: np.random.Generator, count_per_region: int, bounds: Validity
) -> list[StepBatch]:
    """``count_per_region`` decode-only, prefill-only and mixed steps within ``bounds``.

    Batch sizes, chunks and contexts are log-uniform; half of the prefills start at context 0,
    half of them are alone in their step. Steps whose tokens would not fit in the KV cache are
    drawn again.
    """
    return [_draw(rng, region, bounds) for region in REGIONS for _ in range(count_per_region)]


def _draw(rng: np.random.Generator, region: str, bounds: Validity) -> StepBatch:
    decodes = _LogUniform(1, bounds.max_decodes)
    step_tokens = _LogUniform(16, bounds.max_step_tokens)
    while True:
        usual = rng.random() < 2 / 3
        contexts = _LogUniform(16, USUAL_CONTEXT_TOKENS if usual else bounds.max_context_tokens)
        n_d = kv = n_p = c = p = 0
        if region != "prefill":
            n_d = decodes.draw(rng)
            kv = n_d * contexts.draw(rng)
        if region != "decode":
            n_p = int(rng.choice((1, 1, 1, 2, 4, 8)))
            c = max(1, step_tokens.draw(rng) // n_p)
            p = contexts.draw(rng) if rng.random() < 0.5 else 0
        batch = StepBatch(n_d, kv, n_p, c, p)
        in_cache = kv + n_p * (p + c) <= bounds.max_kv_tokens
        in_context = p + c <= bounds.max_context_tokens
        if in_cache and in_context and batch.tokens <= bounds.max_step_tokens:
            return batch
