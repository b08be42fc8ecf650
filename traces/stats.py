"""A trace in a few numbers, for the header of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetsim.traces.prefix_tree import build_segments
from fleetsim.traces.schema import Trace


@dataclass(frozen=True, slots=True)
class LengthStats:
    """Token counts of one column; percentiles interpolate linearly between order statistics."""

    mean: float
    p50: float
    p99: float
    max: int
    total: int


@dataclass(frozen=True, slots=True)
class TraceStats:
    """What a trace offers.

    Attributes:
        requests: how many.
        span_s: from the first arrival to the last.
        rate_rps: (requests - 1) / span_s; NaN when all arrive at once.
        interarrival_cv: standard deviation of the gaps between arrivals over their mean; 1 for a
            Poisson process; NaN when all arrive at once.
        prompt_tokens: lengths of prompts.
        output_tokens: lengths of outputs.
        ideal_prefix_hit_share: share of all prompt tokens that lie in a prefix which an earlier
            request of the trace had too: what an unlimited prefix cache of any granularity could
            serve. None for a trace without block ids.
    """

    requests: int
    span_s: float
    rate_rps: float
    interarrival_cv: float
    prompt_tokens: LengthStats
    output_tokens: LengthStats
    ideal_prefix_hit_share: float | None


def trace_stats(trace: Trace) -> TraceStats:
    """Summarise a trace."""
    span_s = float(trace.arrival_s[-1])
    gaps = np.diff(trace.arrival_s)
    return TraceStats(
        requests=len(trace),
        span_s=span_s,
        rate_rps=(len(trace) - 1) / span_s if span_s > 0 else float("nan"),
        interarrival_cv=float(gaps.std() / gaps.mean()) if span_s > 0 else float("nan"),
        prompt_tokens=_lengths(trace.prompt_tokens),
        output_tokens=_lengths(trace.output_tokens),
        ideal_prefix_hit_share=_ideal_hit_share(trace),
    )


def _lengths(tokens: npt.NDArray[np.int32]) -> LengthStats:
    p50, p99 = np.percentile(tokens, [50, 99])
    total = int(tokens.sum(dtype=np.int64))
    return LengthStats(total / len(tokens), float(p50), float(p99), int(tokens.max()), total)


def _ideal_hit_share(trace: Trace) -> float | None:
    segments = build_segments(trace)
    if segments is None:
        return None
    tokens = segments.end_token - segments.start_token
    # every segment is a miss once, where it first appears, and a hit ever after
    hits = int(tokens[segments.segment_ids].sum()) - int(tokens.sum())
    return hits / int(trace.prompt_tokens.sum(dtype=np.int64))
