"""Counts the steps that lie outside what a profile was fitted to."""

from __future__ import annotations

from fleetsim.calibration.profile import Validity
from fleetsim.sim.engine.decode_run import DecodeRun
from fleetsim.sim.engine.settings import EngineSettings


class ValidityWatch:
    """Counts larger steps and longer sequences than a profile's fit has seen.

    Attributes:
        steps: of all engines that share this watch.
        outside: steps with more decodes, tokens or KV tokens than the fit's largest.
        too_long: requests whose context grows longer than the fit's longest.
    """

    __slots__ = (
        "_context_tokens",
        "_decodes",
        "_kv_tokens",
        "_step_tokens",
        "outside",
        "steps",
        "too_long",
    )

    def __init__(self, validity: Validity) -> None:
        self._decodes = validity.max_decodes
        self._step_tokens = validity.max_step_tokens
        self._context_tokens = validity.max_context_tokens
        self._kv_tokens = validity.max_kv_tokens
        self.steps = 0
        self.outside = 0
        self.too_long = 0

    @classmethod
    def if_needed(cls, validity: Validity | None, settings: EngineSettings) -> ValidityWatch | None:
        """A watch, or None where the engine's limits keep every step inside."""
        if validity is None:
            return None
        inside = (
            settings.max_num_seqs <= validity.max_decodes
            and settings.max_num_batched_tokens <= validity.max_step_tokens
            and settings.max_model_len <= validity.max_context_tokens
            and (settings.num_gpu_blocks - 1) * settings.block_size <= validity.max_kv_tokens
        )
        return None if inside else cls(validity)

    def step(self, n_decodes: int, kv_tokens: int, step_tokens: int) -> None:
        """A step by itself."""
        self.steps += 1
        self.outside += (
            n_decodes > self._decodes
            or kv_tokens > self._kv_tokens
            or step_tokens > self._step_tokens
        )

    def run(self, run: DecodeRun, steps: int) -> None:
        """The first steps of a run; each has one token more per decode than the one before."""
        self.steps += steps
        n = run.n_decodes
        if n > self._decodes or n > self._step_tokens:
            self.outside += steps
        else:
            inside = max(0, (self._kv_tokens - run.kv_tokens) // n + 1)
            self.outside += max(0, steps - inside)

    def request(self, context_tokens: int) -> None:
        """A request that comes with so many tokens, prompt and output together."""
        self.too_long += context_tokens > self._context_tokens
