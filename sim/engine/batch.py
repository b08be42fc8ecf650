"""What one step computes."""

from __future__ import annotations

from fleetsim.sim.engine.sequence import Sequence

_NONE: list[Sequence] = []  # shared by all batches without a prefill; never appended to


class Batch:
    """What one step computes; the shape from which its cost follows.

    Attributes:
        step: its number.
        n_decodes, kv_tokens: sequences that decode, and the sum of their context tokens computed
            before this step.
        n_prefills, prefill_tokens: prefill chunks and their tokens.
        prefill_sq: sum of c * c over chunks of c tokens.
        prefill_ctx: sum of c * p, p being the chunk's context tokens before this step.
        prefill_kv_tokens: sum of p.
        firsts: sequences whose prefill this step completes: it makes a token of each.
        admitted: sequences that began or resumed in this step.
    """

    __slots__ = (
        "admitted",
        "firsts",
        "kv_tokens",
        "n_decodes",
        "n_prefills",
        "prefill_ctx",
        "prefill_kv_tokens",
        "prefill_sq",
        "prefill_tokens",
        "step",
    )

    def __init__(self, step: int, n_decodes: int, kv_tokens: int) -> None:
        self.step = step
        self.n_decodes = n_decodes
        self.kv_tokens = kv_tokens
        self.n_prefills = 0
        self.firsts: list[Sequence] = _NONE
        self.admitted: list[Sequence] = _NONE

    def add_prefill(self, chunk_tokens: int, context_tokens: int) -> None:
        """Add a chunk to the shape; before the first one, the prefill sums are not there."""
        if self.n_prefills == 0:
            self.prefill_tokens = self.prefill_sq = 0
            self.prefill_ctx = self.prefill_kv_tokens = 0
            self.firsts = []
            self.admitted = []
        self.n_prefills += 1
        self.prefill_tokens += chunk_tokens
        self.prefill_sq += chunk_tokens * chunk_tokens
        self.prefill_ctx += chunk_tokens * context_tokens
        self.prefill_kv_tokens += context_tokens

    @property
    def tokens(self) -> int:
        """All tokens that the step computes."""
        return self.n_decodes + (self.prefill_tokens if self.n_prefills else 0)
