"""Traces side by side: one column each, in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from fleetsim.sim.report.format import DASH, digits, percent, seconds
from fleetsim.traces import LengthStats, Trace, TraceStats


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What is shown of one trace.

    Attributes:
        name: above its column.
        trace: the trace.
        stats: its numbers.
        hit_curve: (cache size in blocks, None for no limit; share of blocks that hit; share of
            prompt tokens); empty where nothing is known about prefixes.
    """

    name: str
    trace: Trace
    stats: TraceStats
    hit_curve: Sequence[tuple[int | None, float, float]]


def trace_table(summaries: Sequence[TraceSummary]) -> Table:
    """Arrivals, lengths, sessions, ideal prefix hits, and the accounting of rows."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", style="dim", no_wrap=True)
    for summary in summaries:
        table.add_column(summary.name, justify="right", overflow="fold")

    def section(rows: Sequence[dict[str, str]]) -> None:
        """Labels in the order of their first appearance; a dash where a trace has no such row."""
        labels = list(dict.fromkeys(label for cells in rows for label in cells))
        for label in labels:
            table.add_row(label, *(Text(cells.get(label, DASH)) for cells in rows))
        table.add_section()

    section([_arrivals(summary) for summary in summaries])
    section([_lengths("prompt", summary.stats.prompt_tokens) for summary in summaries])
    section([_lengths("output", summary.stats.output_tokens) for summary in summaries])
    section([_sessions(summary.stats) for summary in summaries])
    section([_prefixes(summary) for summary in summaries])
    section([_origin(summary.trace) for summary in summaries])
    return table


def _number(value: float) -> str:
    return DASH if math.isnan(value) else digits(value)


def _arrivals(summary: TraceSummary) -> dict[str, str]:
    stats, about = summary.stats, summary.trace.metadata
    resolution_s = about.time_resolution_s
    return {
        "requests": f"{stats.requests:,}",
        "span": seconds(stats.span_s),
        "rate": f"{_number(stats.rate_rps)} req/s",
        "gaps' CV": _number(stats.interarrival_cv),
        **{f"IDC at {window_s} s": _number(index) for window_s, index in stats.dispersion.items()},
        "equal stamps": percent(stats.shared_stamp_share),
        "stamped every": seconds(resolution_s) if resolution_s is not None else "unknown",
    }


def _lengths(what: str, lengths: LengthStats) -> dict[str, str]:
    return {
        f"{what} tokens": f"{lengths.total:,}",
        "  mean": digits(lengths.mean, 4),
        "  p50": digits(lengths.p50, 4),
        "  p90": digits(lengths.p90, 4),
        "  p95": digits(lengths.p95, 4),
        "  p99": digits(lengths.p99, 4),
        "  max": f"{lengths.max:,}",
    }


def _sessions(stats: TraceStats) -> dict[str, str]:
    rows = {"sessions": "none"}
    if stats.sessions is not None:
        sessions = stats.sessions
        rows = {
            "sessions": f"{sessions.sessions:,}",
            "  requests in them": f"{sessions.requests:,}",
            "  turns, mean": digits(sessions.turns_mean),
            "  turns, p50": digits(sessions.turns_p50),
            "  turns, max": f"{sessions.turns_max:,}",
            "  between turns, p50": seconds(sessions.gap_p50_s),
        }
    if stats.think is not None:
        think = stats.think
        rows |= {
            "closed loop": f"{think.requests:,}",
            "  think time, p50": seconds(think.p50_s),
            "  think time, p90": seconds(think.p90_s),
            "  think time, p99": seconds(think.p99_s),
        }
    return rows


def _prefixes(summary: TraceSummary) -> dict[str, str]:
    about = summary.trace.metadata
    if not summary.hit_curve:
        return {"shared prefixes": "unknown"}
    rows = {
        "shared prefixes": about.prefix_scope,
        "block": f"{about.block_tokens:,} tokens",
        "ideal hits, LRU": "of blocks, of tokens",
    }
    for size, blocks, tokens in summary.hit_curve:
        label = "  no limit" if size is None else f"  {size:,} blocks"
        rows[label] = f"{percent(blocks)}, {percent(tokens)}"
    return rows


def _origin(trace: Trace) -> dict[str, str]:
    about = trace.metadata
    dropped = {f"  dropped: {reason}": f"{n:,}" for reason, n in about.rows_dropped.items()}
    return {
        "rows read": f"{about.rows_read:,}",
        **dropped,
        "rows kept": f"{about.rows_kept:,}",
        "begins": about.t0_iso or "unknown",
        "licence": about.licence or "unknown",
    }
