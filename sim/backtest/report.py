"""A back-test as text, as JSON and as a picture."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from fleetsim.sim.backtest.measured import Floats, MeasuredRun
from fleetsim.sim.backtest.replay import Replay
from fleetsim.sim.backtest.scores import Comparison, Row, tpot_s

_TOKENS_PER_S = "output tokens/s"


def comparison_table(comparison: Comparison) -> Table:
    """One line a statistic; times in milliseconds."""
    table = Table(box=None, pad_edge=False)
    for column in ("requests", "metric", "", "measured", "simulated", "error"):
        table.add_column(column, justify="left" if column in ("requests", "metric") else "right")
    last = ("", "")
    for row in comparison.rows:
        group = f"{row.group} ({comparison.groups[row.group]:,})"
        table.add_row(
            group if row.group != last[0] else "",
            f"{row.metric}{'' if row.metric == _TOKENS_PER_S else ' ms'}"
            if (row.group, row.metric) != last
            else "",
            row.statistic,
            _number(row, row.measured),
            _number(row, row.simulated),
            f"{row.error:+.1%}",
        )
        last = (row.group, row.metric)
    return table


def _number(row: Row, value: float) -> str:
    return f"{value:,.1f}" if row.metric == _TOKENS_PER_S else f"{value * 1e3:,.1f}"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """All rows; times in seconds, errors relative, None where there is none."""
    return {
        "requests": comparison.groups,
        "rows": [
            {
                "group": row.group,
                "metric": row.metric,
                "statistic": row.statistic,
                "measured": row.measured,
                "simulated": row.simulated,
                "error": row.error if np.isfinite(row.error) else None,
            }
            for row in comparison.rows
        ],
    }


def comparison_figure(run: MeasuredRun, simulated: Replay, title: str) -> Figure:
    """Distributions of TTFT, TPOT and E2E, measured and simulated, and TTFT by arrival."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    figure.suptitle(title)
    tpots = (
        tpot_s(run.ttft_s, run.e2e_s, run),
        tpot_s(simulated.ttft_s, simulated.e2e_s, run),
    )
    panels: tuple[tuple[str, Floats, Floats], ...] = (
        ("TTFT (s)", run.ttft_s, simulated.ttft_s),
        ("TPOT (ms)", tpots[0] * 1e3, tpots[1] * 1e3),
        ("E2E (s)", run.e2e_s, simulated.e2e_s),
    )
    for ax, (label, was, is_) in zip(axes.flat, panels, strict=False):
        for values, name, style in ((was, "measured", "-"), (is_, "simulated", "--")):
            shares = np.arange(1, len(values) + 1) / len(values)
            ax.step(np.sort(values), shares, style, where="post", label=name)
        ax.set_xlabel(label)
        ax.set_ylabel("share of requests")
        ax.set_ylim(0, 1)
    axes[0, 0].legend()
    by_arrival = axes[1, 1]
    by_arrival.plot(run.arrival_s, run.ttft_s, ".", label="measured")
    by_arrival.plot(run.arrival_s, simulated.ttft_s, ".", markersize=3, label="simulated")
    by_arrival.set_xlabel("arrival (s)")
    by_arrival.set_ylabel("TTFT (s)")
    by_arrival.legend()
    return figure
