"""`fleetsim trace stats`: traces in numbers."""

import json
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetsim.cli.options import JsonOption
from fleetsim.cli.trace.inputs import FormatOption, read_trace, title_of

if TYPE_CHECKING:
    from fleetsim.sim.report.trace_table import TraceSummary


def stats(
    traces: Annotated[
        list[str], typer.Argument(metavar="TRACE...", help="Files; 'sample' is the bundled one.")
    ],
    format: FormatOption = None,
    cache_blocks: Annotated[
        list[int] | None,
        typer.Option(
            "--cache-blocks",
            metavar="N",
            min=1,
            help="Ideal prefix hits in a cache of N of the trace's blocks; may be repeated.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say in numbers what traces hold: arrivals, lengths, sessions, prefixes, rows.

    CV is that of the gaps between arrivals, IDC the variance over the mean of arrivals per window
    of 1, 10 and 60 s; both are 1 for a Poisson process. Ideal hits are those of one LRU prefix
    cache for all requests, which take no time: what a fleet's caches are to be measured against.

    \b
    Examples:
      fleetsim trace stats sample
      fleetsim trace stats monday.csv tuesday.csv
      fleetsim trace stats mooncake.jsonl --cache-blocks 1000 --cache-blocks 50000 --json
    """
    summaries = [_summary(path, format, cache_blocks) for path in traces]
    if as_json:
        print(json.dumps({"traces": [_as_json(one) for one in summaries]}, indent=2))
        return
    from rich.console import Console

    from fleetsim.sim.report.trace_table import trace_table

    Console(file=sys.stdout).print(trace_table(summaries))
    for one in summaries:
        for warning in one.trace.metadata.warnings:
            typer.echo(f"fleetsim: {one.name}: {warning}", err=True)


def _summary(path: str, format: str | None, cache_blocks: list[int] | None) -> "TraceSummary":
    from fleetsim.sim.report.trace_table import TraceSummary
    from fleetsim.traces import trace_stats
    from fleetsim.traces.reuse import hit_curve, prefix_reuse, usual_cache_sizes

    trace = read_trace(path, format)
    reuse = prefix_reuse(trace)
    curve: list[tuple[int | None, float, float]] = []
    if reuse is not None and reuse.total_blocks:
        sizes = sorted(set(cache_blocks)) if cache_blocks else usual_cache_sizes(reuse)
        curve = hit_curve(reuse, [None, *sizes])
    return TraceSummary(title_of(trace), trace, trace_stats(trace), curve)


def _as_json(summary: "TraceSummary") -> dict[str, Any]:
    numbers = _without_nan(asdict(summary.stats))
    assert isinstance(numbers, dict)
    curve = [
        {"cache_blocks": size, "hit_share_of_blocks": blocks, "hit_share_of_prompt_tokens": tokens}
        for size, blocks, tokens in summary.hit_curve
    ]
    return {
        **numbers,
        "ideal_prefix_hits": curve or None,
        "content_hash": summary.trace.content_hash(),
        "metadata": asdict(summary.trace.metadata),
    }


def _without_nan(value: object) -> object:
    """Undefined numbers as null: JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
