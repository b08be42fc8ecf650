"""Distributions of what users felt, against the SLO."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from fleetsim.sim.report.format import bound, digits, seconds
from fleetsim.sim.report.style import (
    BLUE,
    GREEN,
    GREY,
    VERMILION,
    empty_note,
    house_style,
    new_figure,
)
from fleetsim.sim.report.window import WindowRequests, subtitle, window_requests
from fleetsim.sim.results.histogram import HIGHEST_S
from fleetsim.sim.results.measures import Floats
from fleetsim.sim.results.result import Result

_PANELS = (
    ("client_ttft_s", "Time to first token, at the client"),
    ("tpot_s", "Time per output token"),
    ("e2e_s", "End to end"),
    ("itl_s", "Inter-token latency"),
)


_MARKED = (0.5, 0.9, 0.99)
_DASHES = (0, (4, 3))


def latency_figure(result: Result) -> Figure:
    """Cumulative distributions of client TTFT, TPOT, end-to-end and ITL, with the SLO's bounds.

    The first three count all requests offered in the measurement window: a curve that ends below
    100 % misses those that never completed. ITL counts every gap between tokens that
    ended in the window. An axis goes as far as 99.9 % of the curve, and to every bound.
    """
    requests = window_requests(result)
    with house_style():
        figure = new_figure(10.5, 7.4, "What users felt", subtitle(result))
        grid = figure.subplots(2, 2)
        for axes, (metric, title) in zip(grid.flat, _PANELS, strict=True):
            axes.set_title(title)
            if metric == "itl_s":
                _draw_itl(axes, result)
            else:
                _draw_requests(axes, requests, metric)
            _draw_slo(axes, result.summary["slo"], metric)
            _dress(axes, "gaps between tokens" if metric == "itl_s" else "offered requests")
        if result.summary["slo"]["percentiles"] or result.summary["slo"]["per_request"]:
            _legend(figure)
    return figure


def _draw_requests(axes: Axes, requests: WindowRequests, metric: str) -> None:
    values = np.sort(requests.measures[metric][requests.completed])
    values = values[~np.isnan(values)]
    misses = int(np.count_nonzero(~requests.completed))
    _draw_curve(axes, values, np.arange(1, len(values) + 1) / max(1, len(values) + misses))


def _draw_itl(axes: Axes, result: Result) -> None:
    bins = result.columns("itl_histogram", ("lower_s", "upper_s", "count"))
    lower_s, upper_s = bins["lower_s"], bins["upper_s"]
    middle_s = np.sqrt(np.where(lower_s > 0.0, lower_s, upper_s) * np.minimum(upper_s, HIGHEST_S))
    values_s, index = np.unique(middle_s, return_inverse=True)
    counts = np.bincount(index, bins["count"], len(values_s))
    _draw_curve(axes, values_s, np.cumsum(counts) / max(1.0, counts.sum()))


def _draw_curve(axes: Axes, values_s: Floats, shares: Floats) -> None:
    if not len(values_s):
        empty_note(axes, "nothing completed")
        return
    axes.plot(values_s, shares, color=BLUE)
    for share in _MARKED:
        index = int(np.searchsorted(shares, share))
        if index < len(values_s):
            value_s = float(values_s[index])
            axes.plot(value_s, share, "o", color=BLUE, markersize=4.5)
            text = f"p{share * 100:g}  {seconds(value_s)}"
            _label(axes, text, (value_s, share), (-7, 3), BLUE, align="right")
    if shares[-1] < 1.0:
        axes.axhspan(shares[-1], 1.0, color=VERMILION, alpha=0.15, linewidth=0)
        text = f"{digits((1 - float(shares[-1])) * 100)} % never completed"
        corner = (0.0, float(shares[-1]))
        _label(axes, text, corner, (5, -14), VERMILION, x_is_fraction=True)


def _draw_slo(axes: Axes, slo: dict[str, Any], metric: str) -> None:
    lines: list[tuple[str, str]] = []
    limit_s = slo["per_request"].get(metric)
    if limit_s is not None:
        axes.axvline(limit_s, color=GREY, linestyle=_DASHES, linewidth=1.2)
        lines.append((f"each ≤ {bound(limit_s)}", GREY))
    for target in slo["percentiles"]:
        if target["metric"] != metric:
            continue
        share, at_most_s = target["percentile"] / 100, target["at_most_s"]
        colour = GREEN if target["passed"] else VERMILION
        axes.plot(at_most_s, share, marker=4, markersize=8, color=colour, zorder=4.0)
        text = f"p{target['percentile']:g} ≤ {bound(at_most_s)}"
        if target["max_prompt_tokens"] is not None:
            text = f"prompts ≤ {target['max_prompt_tokens']:,}: {text}"
        lines.append((text, colour))
    # In the corner under the curve, where no distribution runs.
    for height, (text, colour) in enumerate(reversed(lines)):
        corner = (1.0, 0.0)
        _label(axes, text, corner, (-4, 5 + 13 * height), colour, "right", x_is_fraction=True)


def _label(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    offset: tuple[int, int],
    colour: str,
    align: Literal["left", "right"] = "left",
    *,
    x_is_fraction: bool = False,
) -> None:
    label = axes.annotate(
        text,
        at,
        xycoords=("axes fraction" if x_is_fraction else "data", "data"),
        xytext=offset,
        textcoords="offset points",
        ha=align,
        fontsize=8.5,
        color=colour,
        bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "alpha": 0.9, "linewidth": 0},
        zorder=3.0,
    )
    label.set_in_layout(False)


def _dress(axes: Axes, counted: str) -> None:
    axes.set_xscale("log")
    left, right = _range(axes)
    axes.set_xlim(left, right)
    decades = np.log10(right / left)
    ticks = (1.0, 2.0, 5.0) if decades < 1.7 else (1.0, 3.0) if decades < 3 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(10, subs=ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: bound(x)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0.0, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.set_ylabel(f"share of {counted}")


def _range(axes: Axes) -> tuple[float, float]:
    """Room for every bound and mark, and for the curve from its 0.2 to its 99.9 per cent."""
    shown: list[float] = []
    for line in axes.lines:
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        if len(x) > 2:
            x = x[np.clip(np.searchsorted(y / y[-1], (0.002, 0.999)), 0, len(x) - 1)]
        shown += x.tolist()
    if not shown:
        return 0.01, 10.0
    return max(min(shown), 1e-6) / 1.8, max(max(shown), 1e-6) * 1.3


def _legend(figure: Figure) -> None:
    def mark(marker: Any, colour: str, label: str) -> Line2D:
        return Line2D([], [], marker=marker, color=colour, linestyle="none", label=label)

    figure.legend(
        handles=[
            mark(4, GREEN, "SLO percentile, met: the curve passes left of the mark"),
            mark(4, VERMILION, "not met"),
            Line2D([], [], color=GREY, linestyle=_DASHES, label="bound for each request"),
        ],
        loc="outside lower left",
        ncols=3,
    )
