"""Steps as columns: what each one computed, and how long it took."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

REGIONS = ("decode", "prefill", "mixed")
"""Kinds of steps: decodes alone, prefill chunks alone, both."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """One entry per step in every column; contexts are counted before the step.

    Attributes:
        n_decodes, kv_tokens: decodes, and their computed tokens together.
        n_prefills, prefill_tokens: prefill chunks, and their tokens.
        prefill_square: sum of ``c * c / 2`` over chunks of ``c`` tokens.
        prefill_context: sum of ``c * p`` over chunks at ``p`` computed tokens.
        longest_context: tokens of the longest sequence, with what the step adds.
        seconds: the step's duration.
    """

    n_decodes: Floats
    kv_tokens: Floats
    n_prefills: Floats
    prefill_tokens: Floats
    prefill_square: Floats
    prefill_context: Floats
    longest_context: Floats
    seconds: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def tokens(self) -> Floats:
        """Tokens that each step computes."""
        return self.n_decodes + self.prefill_tokens

    def region(self, name: str) -> Mask:
        """Which steps are ``decode``, ``prefill`` or ``mixed``."""
        decodes, prefills = self.n_decodes > 0, self.n_prefills > 0
        if name == "mixed":
            return decodes & prefills
        return decodes & ~prefills if name == "decode" else prefills & ~decodes

    def take(self, which: Mask) -> "StepTable":
        """The steps that are marked."""
        return StepTable(*(getattr(self, field.name)[which] for field in fields(self)))

    def columns(self, knots: Sequence[int]) -> Floats:
        """One row per step, one column per coefficient of ``StepCostParameters``, in order."""
        tokens = self.tokens
        ends = (*knots[1:], np.inf)
        segments = [np.clip(tokens - k, 0, end - k) for k, end in zip(knots, ends, strict=True)]
        return np.stack(
            [
                np.ones_like(tokens),
                np.sign(self.n_decodes),
                np.sign(self.n_prefills),
                *segments,
                self.n_decodes,
                self.kv_tokens,
                self.prefill_square,
                self.prefill_context,
                np.sign(self.n_prefills) * self.kv_tokens,
            ],
            axis=1,
        )
