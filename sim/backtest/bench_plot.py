"""A fit to bench results as a picture and as a table."""

from matplotlib.figure import Figure
from rich.table import Table

from fleetsim.sim.backtest.bench_result import METRICS, BenchFit, score_rows
from fleetsim.sim.backtest.bench_runs import rate


def bench_table(fit: BenchFit) -> Table:
    """One line a run and metric: means in ms; ``kept out`` marks the run that was not fitted to."""
    table = Table(box=None, pad_edge=False)
    for column in ("run", "in flight", "metric", "measured", "before", "after", "error"):
        table.add_column(column, justify="left" if column in ("run", "metric") else "right")
    last = ""
    for row in score_rows(fit):
        if row["statistic"] != "mean":
            continue
        new = row["run"] != last
        kept = " kept out" if row["held_out"] else ""
        table.add_row(
            f"{row['run']} {row['requests_per_s']:.3g}/s{kept}" if new else "",
            f"{row['in_flight']:.1f}" if new else "",
            f"{row['metric']} ms",
            *(f"{row[key] * 1e3:,.2f}" for key in ("measured_s", "before_s", "after_s")),
            "" if row["after_error"] is None else f"{row['after_error']:+.1%}",
        )
        last = row["run"]
    return table


def bench_figure(fit: BenchFit) -> Figure:
    """Mean and p90 of TTFT, TPOT and ITL over the rate: measured, before and after the fit."""
    rows = score_rows(fit)
    metrics = [m for m in METRICS if any(row["metric"] == m for row in rows)]
    figure = Figure(figsize=(4.5 * len(metrics), 7), layout="constrained")
    figure.suptitle(f"{fit.profile.name}: measured against simulated, by rate")
    axes = figure.subplots(2, len(metrics), squeeze=False, sharex=True)
    for line, statistic in zip(axes, ("mean", "p90"), strict=True):
        for ax, metric in zip(line, metrics, strict=True):
            shown = [r for r in rows if (r["metric"], r["statistic"]) == (metric, statistic)]
            rates = [row["requests_per_s"] for row in shown]
            for key, style, name in (
                ("measured_s", "ko-", "measured"),
                ("before_s", "C1^:", "simulated, base profile"),
                ("after_s", "C0s--", "simulated, fitted"),
            ):
                ax.plot(rates, [row[key] * 1e3 for row in shown], style, label=name)
            for score in fit.scores:
                if score.held_out:
                    ax.axvline(rate(score.run), color="0.8", label="kept from the fit")
            ax.set_ylabel(f"{statistic} {metric} (ms)")
            ax.set_ylim(bottom=0)
    for ax in axes[1]:
        ax.set_xlabel("requests per second")
    axes[0, 0].legend()
    return figure
