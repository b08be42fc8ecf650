"""Judges a run by its service-level objective: percentiles, and targets for every request.

The two parts are never mixed. Both look at the requests that arrived in the measurement window,
all of them: a request that was rejected, failed, cancelled or left unfinished is a miss, never a
request that was not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, nan
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fleetsim.sim.results.measures import SLO_METRICS, Array, Floats

Mask = npt.NDArray[np.bool_]


class PercentileTarget(Protocol):
    """The percentile of a metric (0 to 100) is to be at most so many seconds.

    It looks at requests with prompts of at most max_prompt_tokens, or at all if that is None.
    """

    @property
    def metric(self) -> str:
        """One of `SLO_METRICS`."""

    @property
    def percentile(self) -> float:
        """0 to 100."""

    @property
    def at_most_s(self) -> float:
        """The bound in seconds."""

    @property
    def max_prompt_tokens(self) -> int | None:
        """Longest prompt that counts."""


class Slo(Protocol):
    """A service-level objective, as the scenario states it."""

    @property
    def percentiles(self) -> Sequence[PercentileTarget]:
        """Targets that the run as a whole must meet, all of them."""

    @property
    def per_request(self) -> object:
        """Has an attribute for each of `SLO_METRICS`: the bound in seconds, or None."""


@dataclass(frozen=True, slots=True)
class PercentileVerdict:
    """What became of one percentile target.

    Attributes:
        observed_s: the percentile over all requests that count, a miss being infinitely slow;
            infinite when the percentile falls among the misses, NaN when no request counts.
        completed_s: the percentile over the completed ones alone, to be read and not judged by.
        requests: how many requests count; misses: how many of them did not complete.
        passed: whether observed_s <= at_most_s; None when no request counts.
    """

    target: PercentileTarget
    observed_s: float
    completed_s: float
    requests: int
    misses: int
    passed: bool | None


def per_request_bounds(slo: Slo) -> dict[str, float]:
    """The per-request bounds that are stated, in seconds by metric."""
    bounds = {metric: getattr(slo.per_request, metric, None) for metric in SLO_METRICS}
    return {metric: bound for metric, bound in bounds.items() if bound is not None}


def met(bounds: Mapping[str, float], completed: Mask, measured: Mapping[str, Floats]) -> Mask:
    """Which requests completed and met every bound. TPOT of a single token counts as met."""
    result = completed.copy()
    for metric, bound_s in bounds.items():
        within = measured[metric] <= bound_s
        if metric == "tpot_s":
            within |= np.isnan(measured[metric])
        result &= within
    return result


def judge(
    target: PercentileTarget, completed: Mask, measured: Mapping[str, Floats], prompts: Array
) -> PercentileVerdict:
    """Judge one percentile target over the requests offered in the window.

    Args:
        target: what is asked.
        completed: which of the offered requests completed.
        measured: their measures; only those of completed requests are read.
        prompts: their prompt tokens.
    """
    counts = np.ones(len(completed), bool)
    if target.max_prompt_tokens is not None:
        counts = prompts <= target.max_prompt_tokens
    values = measured[target.metric][counts & completed]
    if target.metric == "tpot_s":
        values = values[~np.isnan(values)]
    misses = int(np.count_nonzero(counts & ~completed))
    observed_s = percentile(values, target.percentile, misses)
    passed = None if np.isnan(observed_s) else bool(observed_s <= target.at_most_s)
    return PercentileVerdict(
        target=target,
        observed_s=observed_s,
        completed_s=percentile(values, target.percentile),
        requests=len(values) + misses,
        misses=misses,
        passed=passed,
    )


def percentile(values: Floats, percent: float, misses: int = 0) -> float:
    """The percentile by linear interpolation between ranks, as `numpy.percentile` and vLLM bench.

    Args:
        values: finite values in any order.
        percent: 0 to 100.
        misses: how many further values are infinite.

    Returns:
        NaN when there is nothing at all; infinity when a rank that takes part is a miss.
    """
    if not misses:
        return float(np.percentile(values, percent)) if len(values) else nan
    rank = (len(values) + misses - 1) * percent / 100.0
    if ceil(rank) >= len(values):
        return inf
    ordered = np.sort(values)
    low, high = ordered[floor(rank)], ordered[ceil(rank)]
    return float(low + (high - low) * (rank - floor(rank)))


def finite_or_none(value: float) -> float | None:
    """The value as JSON can hold it: None for NaN and the infinities."""
    return float(value) if isfinite(value) else None
