"""A check against Prometheus as text, as JSON and as a picture."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fleetsim.sim.backtest.against_prometheus import PrometheusCheck
from fleetsim.sim.backtest.fleet_check import Metric
from fleetsim.sim.backtest.fleet_series import utc
from fleetsim.sim.backtest.prometheus_dump import (
    GENERATION_TOKENS,
    ITL,
    KV_USAGE,
    PROMPT_TOKENS,
    RUNNING,
    TTFT,
    WAITING,
    Floats,
)
from fleetsim.sim.backtest.verdict import CANNOT_TELL, DO_NOT_TRUST, TRUST
from fleetsim.sim.report.format import DASH, digits, percent, seconds
from fleetsim.sim.report.style import BLUE, ORANGE, empty_note, house_style, new_figure

_COLOURS = {TRUST: "green", DO_NOT_TRUST: "red", CANNOT_TELL: "yellow"}


def check_text(result: PrometheusCheck) -> Group:
    """What was compared, whether it can be, each metric's numbers and verdict, and why."""
    window = result.window
    head = Text(
        f"{result.scenario} against {result.dump}, {utc(window.start_s)} to {utc(window.end_s)}, "
        f"a scrape each {window.interval_s:g} s; tolerance {percent(result.tolerances.mean, 2)} of "
        f"a mean, {percent(result.tolerances.load, 2)} of the load"
    )
    load = Table(box=None, pad_edge=False)
    load.add_column("the same load?")
    for column in ("measured", "simulated"):
        load.add_column(column, justify="right")
    load.add_column("")
    for premise in result.check.premises:
        lag = premise.name == "arrivals over time"
        load.add_row(
            premise.name,
            "" if lag else _amount(premise.measured),
            "" if lag else _amount(premise.simulated),
            Text("no", style="red") if not premise.holds else "yes",
        )
    parts: list[Any] = [head, Text(""), load]
    parts += [
        Text(f"{p.name}: {p.reason}", style="" if p.holds else "red")
        for p in result.check.premises
        if p.reason
    ]
    if not result.check.comparable:
        parts.append(Text("The load differs, so no number below can be trusted.", style="red"))
    parts += [Text(""), _metrics(result), Text("")]
    parts += [
        Text(f"{metric.title}: {metric.verdict}: {metric.reason}")
        for metric in result.check.metrics
    ]
    parts += [Text(f"note: {remark}") for remark in result.remarks]
    return Group(*parts)


def _metrics(result: PrometheusCheck) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("metric", ""):
        table.add_column(column)
    for column in ("measured", "simulated", "error", "+-"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for metric in result.check.metrics:
        for index, one in enumerate(metric.statistics):
            verdict = one.verdict if result.check.comparable else DO_NOT_TRUST
            half = one.half_width / one.measured if one.measured else float("nan")
            table.add_row(
                metric.title if index == 0 else "",
                one.name,
                _value(metric, one.measured),
                _value(metric, one.simulated),
                f"{one.error:+.1%}" if isfinite(one.error) else DASH,
                f"{half:.1%}" if isfinite(half) else "",
                Text(verdict, style=_COLOURS.get(verdict, "")),
            )
        if isfinite(metric.correlation):
            table.add_row("", "correlation", "", f"{metric.correlation:.2f}", "", "", "")
    return table


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else digits(_known(value))


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def _value(metric: Metric, value: float) -> str:
    if not isfinite(value):
        return DASH
    if metric.unit == "s":
        return seconds(value)
    if metric.unit == "share":
        return percent(value)
    return digits(value) + ("/s" if metric.unit == "tokens/s" else "")


def check_json(result: PrometheusCheck) -> dict[str, Any]:
    """Everything but the series; seconds, shares of one, None where there is no number."""
    return {
        "scenario": result.scenario,
        "dump": result.dump,
        "trace": result.trace,
        "model": result.model,
        "trace_start_s": result.trace_start_s,
        "window": {
            "start_s": float(result.window.start_s),
            "end_s": float(result.window.end_s),
            "interval_s": result.window.interval_s,
        },
        "tolerances": asdict(result.tolerances),
        "comparable": result.check.comparable,
        "premises": [
            {
                "name": premise.name,
                "measured": _known(premise.measured),
                "simulated": _known(premise.simulated),
                "holds": premise.holds,
                "reason": premise.reason,
            }
            for premise in result.check.premises
        ],
        "metrics": [_metric_json(metric) for metric in result.check.metrics],
        "remarks": list(result.remarks),
    }


def _metric_json(metric: Metric) -> dict[str, Any]:
    return {
        "metric": metric.key,
        "title": metric.title,
        "unit": metric.unit,
        "verdict": metric.verdict,
        "reason": metric.reason,
        "correlation": _known(metric.correlation),
        "statistics": [
            {
                "name": one.name,
                "measured": _known(one.measured),
                "simulated": _known(one.simulated),
                "error": _known(one.error),
                "half_width": _known(one.half_width),
                "tolerance": _known(one.tolerance),
                "verdict": one.verdict,
                "reason": one.reason,
            }
            for one in metric.statistics
        ],
    }


def check_figure(result: PrometheusCheck) -> Figure:
    """Both fleets over time, and the distributions of TTFT and ITL as far as buckets show them."""
    window = result.window
    minutes = (window.grid_s - window.start_s) / 60.0
    middles = (minutes[1:] + minutes[:-1]) / 2.0
    fleets = (
        ("measured", result.measured, BLUE, "-"),
        ("simulated", result.simulated, ORANGE, "--"),
    )
    with house_style():
        figure = new_figure(
            11,
            11,
            f"{result.scenario} against {result.dump}",
            f"{utc(window.start_s)} to {utc(window.end_s)}; solid measured, dashed simulated",
        )
        axes = figure.subplots(4, 2)
        for ax, (key, title) in zip(
            axes.flat[:3],
            ((RUNNING, "running"), (WAITING, "waiting"), (KV_USAGE, "KV usage (%)")),
            strict=True,
        ):
            for name, fleet, colour, line in fleets:
                scale = 100.0 if key == KV_USAGE else 1.0
                ax.plot(minutes, fleet.gauges[key] * scale, line, color=colour, label=name)
            _over_time(ax, title)
        for ax, (key, title) in zip(
            axes.flat[3:6],
            (
                (TTFT, "first tokens per s"),
                (PROMPT_TOKENS, "prompt tokens per s"),
                (GENERATION_TOKENS, "output tokens per s"),
            ),
            strict=True,
        ):
            for name, fleet, colour, line in fleets:
                totals = fleet.histograms[TTFT].counts if key == TTFT else fleet.counters.get(key)
                if totals is None:
                    empty_note(ax, "not in the dump")
                    continue
                ax.plot(
                    middles, np.diff(totals) / window.interval_s, line, color=colour, label=name
                )
            _over_time(ax, title)
        for ax, (key, title) in zip(axes.flat[6:], ((TTFT, "TTFT"), (ITL, "ITL")), strict=True):
            for name, fleet, colour, line in fleets:
                histogram = fleet.histograms[key]
                shares = histogram.cumulative[-1] / max(histogram.counts[-1], 1.0)
                finite: Floats = histogram.bounds_s[:-1]
                ax.plot(finite, shares[:-1], line, marker=".", color=colour, label=name)
            ends = [
                f.histograms[key].bounds_s[f.histograms[key].bucket(0.9999)] for _, f, *_ in fleets
            ]
            last_s = max([e for e in ends if isfinite(e)], default=None)
            ax.set(xscale="log", ylim=(0, 1.02), title=f"{title}, share up to", xlabel="s")
            ax.set_xlim(right=last_s)
        axes.flat[0].legend()
    return figure


def _over_time(ax: Axes, title: str) -> None:
    ax.set(title=title, xlabel="min", ylim=(0, None))
