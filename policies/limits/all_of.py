"""Several limits on one key, and the check that they let anything through."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from fleetsim.policies.base import ADMITTED, Limiter, Verdict
from fleetsim.traces.errors import InputError


class AllOf:
    """Reserves from all of its limits, or from none.

    Of several refusals the one that lasts longest speaks; one without Retry-After lasts longest.
    """

    def __init__(self, limits: Sequence[Limiter]) -> None:
        self._limits = tuple(limits)

    @property
    def largest_estimate_tokens(self) -> float:
        """The least of the limits' own."""
        return min((limit.largest_estimate_tokens for limit in self._limits), default=inf)

    def try_reserve(self, now_s: float, estimated_tokens: int) -> Verdict:
        """Reserve from each; where one refuses, cancel at the others."""
        granted = []
        refusal = ADMITTED
        for limit in self._limits:
            verdict = limit.try_reserve(now_s, estimated_tokens)
            if verdict.admitted:
                granted.append(limit)
            elif refusal.admitted or _wait_s(verdict) > _wait_s(refusal):
                refusal = verdict
        if not refusal.admitted:
            for limit in granted:
                limit.cancel(now_s, estimated_tokens)
        return refusal

    def reconcile(self, now_s: float, estimated_tokens: int, actual_tokens: int) -> None:
        """Reconcile with each."""
        for limit in self._limits:
            limit.reconcile(now_s, estimated_tokens, actual_tokens)

    def cancel(self, now_s: float, estimated_tokens: int) -> None:
        """Cancel at each."""
        for limit in self._limits:
            limit.cancel(now_s, estimated_tokens)


def refuse_hopeless(limiter: Limiter, smallest_estimate_tokens: int, where: str) -> None:
    """Stop at start-up if a limit would refuse even the smallest request, for ever.

    Args:
        limiter: the limit of one key.
        smallest_estimate_tokens: the least prompt + max_tokens that the workload can ask for.
        where: file and key of the limit, for the message.

    Raises:
        InputError: the smallest estimate is above the limit's capacity.
    """
    largest = limiter.largest_estimate_tokens
    if smallest_estimate_tokens > largest:
        raise InputError(
            f"{where}: holds {largest:g} tokens, but the smallest request reserves "
            f"{smallest_estimate_tokens} (prompt + max_tokens), so every one would be refused; "
            f"raise burst_tokens or lower the cap on max_tokens"
        )


def _wait_s(verdict: Verdict) -> float:
    return inf if verdict.retry_after_s is None else verdict.retry_after_s
