"""A trace at a glance: rate, lengths, gaps between arrivals, and what a prefix cache could do.

Each panel is a function that draws on given axes, for use in a notebook; `trace_figure` puts the
four together.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fleetsim.sim.report.format import percent
from fleetsim.sim.report.style import (
    BLUE,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    empty_note,
    house_style,
    new_figure,
)
from fleetsim.traces import Trace
from fleetsim.traces.reuse import PrefixReuse, prefix_reuse

_MOST_BINS = 120
_MOST_DOTS = 20_000
_MOST_STEPS = 2_000
_CURVE_SIZES = 60
_BINS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400)
_UNITS = (
    (3 * 86_400.0, "days", 86_400.0),
    (3 * 3600.0, "hours", 3600.0),
    (600.0, "minutes", 60.0),
    (0.0, "seconds", 1.0),
)


def trace_figure(trace: Trace, title: str) -> Figure:
    """Four panels: rate over time, lengths, gaps between arrivals, ideal prefix hits.

    Args:
        trace: the trace.
        title: its name and source.

    Returns:
        The figure on the Agg canvas; its ``axes`` are the panels in this order.
    """
    about = trace.metadata
    licence = f"licence {about.licence}" if about.licence else "licence unknown"
    done = "".join(f", {step['name']}" for step in about.transforms)
    aside = f"{len(trace):,} requests of {about.rows_read:,} rows{done}; {licence}"
    with house_style():
        figure = new_figure(11.0, 7.6, title, aside)
        (rate, lengths), (gaps, reuse) = figure.subplots(2, 2)
        draw_rate(rate, trace)
        draw_lengths(lengths, trace)
        draw_gaps(gaps, trace)
        draw_reuse(reuse, trace)
    return figure


def draw_rate(axes: Axes, trace: Trace) -> None:
    """Arrivals per second over time, in bins that the title names."""
    span_s = float(trace.arrival_s[-1])
    unit, unit_s = next((name, size) for least, name, size in _UNITS if span_s >= least)
    bin_s = next((s for s in _BINS_S if span_s / s <= _MOST_BINS), span_s / _MOST_BINS)
    # the last bin may reach past the end of the trace: its rate is over the part inside
    edges_s = np.append(np.arange(0.0, span_s, bin_s), span_s) if span_s else np.array([0.0, 1.0])
    if len(edges_s) > 2 and edges_s[-1] - edges_s[-2] < 0.5 * bin_s:
        edges_s = np.delete(edges_s, -2)  # no sliver with a rate of its own
    counts, _ = np.histogram(trace.arrival_s, edges_s)
    rates = counts / np.diff(edges_s)
    axes.stairs(rates, edges_s / unit_s, fill=True, color=SKY, alpha=0.55)
    axes.stairs(rates, edges_s / unit_s, color=BLUE, linewidth=1.2)
    axes.set_xlim(0.0, edges_s[-1] / unit_s)
    axes.set_ylim(bottom=0.0)
    axes.set_title(f"Rate, in bins of {bin_s:,.4g} s")
    axes.set_xlabel(f"{unit} since the first arrival")
    axes.set_ylabel("requests/s")


def draw_lengths(axes: Axes, trace: Trace) -> None:
    """Prompt and output length of each request; of a large trace evenly picked ones."""
    every = -(-len(trace) // _MOST_DOTS)
    shown = f", one in {every} requests" if every > 1 else ""
    axes.scatter(
        trace.prompt_tokens[::every],
        trace.output_tokens[::every],
        s=7,
        alpha=0.25,
        color=BLUE,
        linewidths=0,
        rasterized=True,
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"Lengths{shown}")
    axes.set_xlabel("prompt tokens")
    axes.set_ylabel("output tokens")


def draw_gaps(axes: Axes, trace: Trace) -> None:
    """Share of gaps between arrivals that are longer, beside a Poisson process of that rate."""
    axes.set_title("Gaps between arrivals")
    axes.set_xlabel("gap x, s")
    axes.set_ylabel("share of gaps above x")
    gaps_s = np.sort(np.diff(trace.arrival_s))
    longer = gaps_s[gaps_s > 0]
    if len(longer) == 0:
        empty_note(axes, "all arrive at once" if len(gaps_s) else "one request only")
        return
    mean_s = float(gaps_s.mean())
    share = 1.0 - np.arange(len(gaps_s) - len(longer), len(gaps_s)) / len(gaps_s)
    pick = np.unique(np.linspace(0, len(longer) - 1, _MOST_STEPS).astype(int))
    tail = np.arange(max(0, len(longer) - 200), len(longer))  # there each one shows
    pick = np.union1d(pick, tail)
    first_s = min(float(longer[0]), mean_s / 100)
    x = np.r_[first_s, longer[pick]]
    axes.step(x, share[np.r_[0, pick]], where="pre", color=BLUE, label="trace")
    x = np.geomspace(first_s, mean_s * np.log(3.0 * len(gaps_s)), 300)
    poisson = "Poisson process of this rate"
    axes.plot(x, np.exp(-x / mean_s), "--", color=GREY, label=poisson)
    axes.set_xscale("log")
    axes.set_yscale("log")
    if len(longer) < len(gaps_s):
        axes.plot([], [], " ", label=f"{percent(1 - len(longer) / len(gaps_s))} of gaps are 0")
    axes.legend(loc="lower left")


def draw_reuse(axes: Axes, trace: Trace) -> None:
    """Ideal prefix hit rate against cache size, see `fleetsim.traces.reuse`."""
    axes.set_title("Ideal prefix hits of one LRU cache")
    axes.set_xlabel("cache size, blocks")
    axes.set_ylabel("share that hits")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    reuse = prefix_reuse(trace)
    if reuse is None or reuse.total_blocks == 0:
        empty_note(axes, "no prefixes known")
        return
    axes.set_xlabel(f"cache size, blocks of {trace.metadata.block_tokens:,} tokens")
    sizes = _curve_sizes(reuse)
    blocks = [reuse.hit_share(size) for size in sizes]
    tokens = [reuse.hit_token_share(size) for size in sizes]
    axes.plot(sizes, blocks, color=BLUE, label="of blocks")
    axes.plot(sizes, tokens, color=ORANGE, label="of prompt tokens")
    limit = reuse.hit_share(None)
    axes.axhline(
        limit, color=VERMILION, linestyle=":", linewidth=1.2, label=f"no limit: {percent(limit)}"
    )
    axes.set_xscale("log")
    axes.set_ylim(0.0, min(1.04, max(0.02, 1.5 * max(limit, tokens[-1]))))
    axes.legend(loc="upper left")


def _curve_sizes(reuse: PrefixReuse) -> list[int]:
    """Sizes from 10 blocks to all distinct ones, evenly on a log scale."""
    most = max(reuse.distinct_blocks, 11)
    sizes = np.geomspace(10, most, _CURVE_SIZES).round()
    return [int(size) for size in np.unique(sizes)]
