"""Refuse now what would miss its time to first token anyway."""

from __future__ import annotations

from pydantic import Field

from fleetsim.policies.base import (
    ADMITTED,
    PolicyParams,
    PoolView,
    ReplicaView,
    RequestView,
    Verdict,
)
from fleetsim.policies.registry import register


@register("admission", "predictive_ttft")
class PredictiveTtft:
    """Refuses a request whose predicted TTFT at the chosen replica is above the SLO.

    Predicted TTFT = (queued_tokens + prompt_tokens) / prefill_tok_per_s: the prompts ahead, then
    one's own. Prefix hits, and decodes that share the steps, are left out. Retry-After is when
    the prediction comes down to the SLO if nothing else arrives; a prompt that misses the SLO on
    an idle replica gets none, and a reason of its own.
    """

    class Params(PolicyParams):
        """The target, and the rate at which a replica works towards it."""

        slo_ttft_s: float = Field(1.0, gt=0, description="highest predicted TTFT to admit")
        prefill_tok_per_s: float | None = Field(
            None,
            gt=0,
            description="measured prefill rate of one replica; null derives it from the profile",
        )

    needs_scraped = False
    needs_prefix = False

    def __init__(self, params: Params) -> None:
        self._slo_ttft_s = params.slo_ttft_s
        self._prefill_tok_per_s = params.prefill_tok_per_s

    def admit(self, request: RequestView, replica: ReplicaView, pool: PoolView) -> Verdict:
        """Yes while the prediction is at most the SLO."""
        rate = self._prefill_tok_per_s or pool.prefill_tokens_per_s
        predicted_ttft_s = (replica.queued_tokens + request.prompt_tokens) / rate
        if predicted_ttft_s <= self._slo_ttft_s:
            return ADMITTED
        if request.prompt_tokens / rate > self._slo_ttft_s:
            return Verdict(False, "prefill_exceeds_slo")
        return Verdict(False, "predicted_ttft", predicted_ttft_s - self._slo_ttft_s)
