"""What the fleet was doing, second by second."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from fleetsim.sim.report.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    empty_note,
    house_style,
    new_figure,
)
from fleetsim.sim.report.window import WindowRequests, subtitle, window_requests
from fleetsim.sim.results.measures import Floats
from fleetsim.sim.results.result import Result

_MOST_INTERVALS = 120
_NICE_S = (
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
)
_UNITS = ((3 * 3600.0, "hours", 3600.0), (600.0, "minutes", 60.0), (0.0, "seconds", 1.0))


def timeline_figure(result: Result) -> Figure:
    """Offered load, requests running and waiting, KV usage and goodput over one time axis.

    Load and goodput count requests by their arrival, those in the measurement window; the middle
    two are the timeline's samples, over all replicas of all pools.
    """
    end_s = result.summary["run"]["end_s"]
    unit, unit_s = next((name, size) for least, name, size in _UNITS if end_s >= least)
    requests = window_requests(result)
    edges_s = _intervals(result)
    with house_style():
        figure = new_figure(10.5, 8.6, "What the fleet was doing", subtitle(result))
        load, queue, cache, goodput = figure.subplots(4, 1, sharex=True)
        _draw_load(load, requests, edges_s, unit_s)
        _draw_samples(queue, cache, result, unit_s)
        _draw_goodput(goodput, requests, edges_s, unit_s)
        goodput.set_xlabel(f"{unit} since the start")
        goodput.set_xlim(0.0, max(end_s, 1e-9) / unit_s)
        goodput.xaxis.set_major_locator(MaxNLocator(12))
    return figure


def _intervals(result: Result) -> Floats:
    window = result.summary["window"]
    length_s = window["end_s"] - window["start_s"]
    step_s = next((s for s in _NICE_S if length_s / s <= _MOST_INTERVALS), length_s / 100)
    # The last interval ends with the window, and is never a sliver.
    count = max(1, round(length_s / step_s)) if step_s else 1
    edges_s = window["start_s"] + step_s * np.arange(count + 1)
    edges_s[-1] = window["end_s"] if length_s else window["start_s"] + 1.0
    return np.asarray(edges_s)


def _per_second(arrival_s: Floats, edges_s: Floats) -> Floats:
    counts, _ = np.histogram(arrival_s, edges_s)
    return counts / np.diff(edges_s)


def _legend(axes: Axes) -> None:
    # Beside the title, where no curve runs.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=2, borderaxespad=0.0)


def _draw_load(axes: Axes, requests: WindowRequests, edges_s: Floats, unit_s: float) -> None:
    offered = _per_second(requests.arrival_s, edges_s)
    axes.stairs(offered, edges_s / unit_s, fill=True, color=SKY, alpha=0.55)
    axes.stairs(offered, edges_s / unit_s, color=BLUE, linewidth=1.4)
    axes.set_title("Offered load")
    axes.set_ylabel("requests/s")


def _draw_samples(queue: Axes, cache: Axes, result: Result, unit_s: float) -> None:
    names = ("t_s", "running", "waiting", "kv_usage")
    samples = result.columns("timeline", names)
    queue.set_title("Requests at the replicas")
    queue.set_ylabel("requests")
    queue.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    cache.set_title("KV cache in use")
    cache.set_ylabel("share of blocks")
    cache.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    cache.set_ylim(0.0, min(1.04, max(0.02, 1.4 * samples["kv_usage"].max(initial=0.0))))
    if not len(samples["t_s"]):
        empty_note(queue, "no samples")
        empty_note(cache, "no samples")
        return
    order = np.argsort(samples["t_s"], kind="stable")
    times_s, first = np.unique(samples["t_s"][order], return_index=True)
    running, waiting, kv = (samples[name][order] for name in names[1:])
    x = times_s / unit_s
    queue.stackplot(
        x,
        np.add.reduceat(running, first),
        np.add.reduceat(waiting, first),
        labels=("running", "waiting"),
        colors=(SKY, ORANGE),
        alpha=0.8,
        linewidth=0,
        step="post",
    )
    _legend(queue)
    replicas = np.diff(np.append(first, len(kv)))
    cache.fill_between(
        x,
        np.minimum.reduceat(kv, first),
        np.maximum.reduceat(kv, first),
        color=SKY,
        alpha=0.45,
        linewidth=0,
        label="least to most used replica",
        step="post",
    )
    cache.step(x, np.add.reduceat(kv, first) / replicas, where="post", color=BLUE, label="mean")
    _legend(cache)


def _draw_goodput(axes: Axes, requests: WindowRequests, edges_s: Floats, unit_s: float) -> None:
    axes.set_title("Goodput")
    axes.set_ylabel("requests/s")
    if requests.good is None:
        empty_note(axes, "no per-request SLO stated")
        return
    offered = _per_second(requests.arrival_s, edges_s)
    good = _per_second(requests.arrival_s[requests.good], edges_s)
    x = edges_s / unit_s
    axes.stairs(good, x, fill=True, color=GREEN, alpha=0.65, label="met the SLO")
    axes.stairs(
        offered, x, baseline=good, fill=True, color=VERMILION, alpha=0.55, label="missed it"
    )
    axes.stairs(offered, x, color=GREY, linewidth=1.0)
    _legend(axes)
