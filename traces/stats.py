"""A trace in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetsim.traces.dispersion import index_of_dispersion
from fleetsim.traces.reuse import shared_prompt_tokens
from fleetsim.traces.schema import FloatArray, Trace

DISPERSION_WINDOWS_S = (1, 10, 60)


@dataclass(frozen=True, slots=True)
class LengthStats:
    """Token counts of one column; percentiles interpolate linearly between order statistics."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: int
    total: int


@dataclass(frozen=True, slots=True)
class SessionStats:
    """The conversations of a trace.

    Attributes:
        sessions: how many.
        requests: that belong to one.
        turns_mean: requests per session.
        turns_p50: their median.
        turns_max: of the longest session.
        gap_p50_s: median time between the arrivals of two requests of a session that follow one
            another, as recorded; None where no session has two.
    """

    sessions: int
    requests: int
    turns_mean: float
    turns_p50: float
    turns_max: int
    gap_p50_s: float | None


@dataclass(frozen=True, slots=True)
class ThinkStats:
    """The closed loop: requests that come a think time after their parent's last token.

    Attributes:
        requests: how many.
        p50_s: median think time.
        p90_s: 90th percentile.
        p99_s: 99th percentile.
    """

    requests: int
    p50_s: float
    p90_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class TraceStats:
    """What a trace offers.

    Attributes:
        requests: how many.
        span_s: from the first arrival to the last.
        rate_rps: (requests - 1) / span_s; NaN when all arrive at once.
        interarrival_cv: standard deviation of the gaps between arrivals over their mean; 1 for a
            Poisson process; NaN when all arrive at once.
        dispersion: index of dispersion by length of window in seconds, see
            :func:`~fleetsim.traces.dispersion.index_of_dispersion`; NaN where the trace has fewer
            than two whole windows.
        shared_stamp_share: share of requests whose arrival time another one has too.
        prompt_tokens: lengths of prompts.
        output_tokens: lengths of outputs.
        sessions: conversations; None where the trace knows none.
        think: closed-loop requests; None where there are none.
        ideal_prefix_hit_share: share of all prompt tokens that lie in a prefix which an earlier
            prompt of the trace had too: what an unlimited prefix cache of any granularity could
            serve. None for a trace without block ids.
    """

    requests: int
    span_s: float
    rate_rps: float
    interarrival_cv: float
    dispersion: dict[int, float]
    shared_stamp_share: float
    prompt_tokens: LengthStats
    output_tokens: LengthStats
    sessions: SessionStats | None
    think: ThinkStats | None
    ideal_prefix_hit_share: float | None


def trace_stats(trace: Trace) -> TraceStats:
    """Summarise a trace."""
    arrivals = trace.arrival_s
    span_s = float(arrivals[-1])
    gaps = np.diff(arrivals)
    return TraceStats(
        requests=len(trace),
        span_s=span_s,
        rate_rps=(len(trace) - 1) / span_s if span_s > 0 else float("nan"),
        interarrival_cv=float(gaps.std() / gaps.mean()) if span_s > 0 else float("nan"),
        dispersion={
            window_s: index_of_dispersion(arrivals, window_s) for window_s in DISPERSION_WINDOWS_S
        },
        shared_stamp_share=_shared_stamp_share(gaps),
        prompt_tokens=_lengths(trace.prompt_tokens),
        output_tokens=_lengths(trace.output_tokens),
        sessions=_sessions(trace),
        think=_think(trace),
        ideal_prefix_hit_share=_ideal_hit_share(trace),
    )


def _shared_stamp_share(gaps: FloatArray) -> float:
    same = gaps == 0
    return float((np.r_[same, False] | np.r_[False, same]).mean())


def _lengths(tokens: npt.NDArray[np.int32]) -> LengthStats:
    p50, p90, p95, p99 = np.percentile(tokens, [50, 90, 95, 99]).tolist()
    total = int(tokens.sum(dtype=np.int64))
    return LengthStats(total / len(tokens), p50, p90, p95, p99, int(tokens.max()), total)


def _sessions(trace: Trace) -> SessionStats | None:
    if trace.session is None:
        return None
    codes = trace.session.codes
    rows = np.flatnonzero(codes >= 0)
    if len(rows) == 0:
        return None
    turns = np.bincount(codes[rows])
    turns = turns[turns > 0]
    rows = rows[np.argsort(codes[rows], kind="stable")]
    gaps_s = np.diff(trace.arrival_s[rows])[np.diff(codes[rows]) == 0]
    return SessionStats(
        sessions=len(turns),
        requests=len(rows),
        turns_mean=float(turns.mean()),
        turns_p50=float(np.median(turns)),
        turns_max=int(turns.max()),
        gap_p50_s=float(np.median(gaps_s)) if len(gaps_s) else None,
    )


def _think(trace: Trace) -> ThinkStats | None:
    if trace.think_s is None:
        return None
    think_s = trace.think_s[~np.isnan(trace.think_s)]
    if len(think_s) == 0:
        return None
    p50, p90, p99 = np.percentile(think_s, [50, 90, 99]).tolist()
    return ThinkStats(len(think_s), p50, p90, p99)


def _ideal_hit_share(trace: Trace) -> float | None:
    shared = shared_prompt_tokens(trace)
    return None if shared is None else shared / int(trace.prompt_tokens.sum(dtype=np.int64))
