"""Measured against simulated, metric by metric, for requests that waited and that did not."""

from dataclasses import dataclass

import numpy as np

from fleetsim.sim.backtest.measured import Floats, MeasuredRun
from fleetsim.sim.backtest.replay import Replay

WAITED_S = 0.05
"""A request that was queued so long waited; its TTFT says more of the queue than of the engine."""

STATISTICS = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True, slots=True)
class Row:
    """One statistic of one metric over one group of requests, in seconds or tokens a second."""

    group: str
    metric: str
    statistic: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Simulated over measured, less 1; NaN where nothing was measured."""
        return self.simulated / self.measured - 1.0 if self.measured else float("nan")


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, and how many requests each group has."""

    groups: dict[str, int]
    rows: tuple[Row, ...]

    def error(self, metric: str, statistic: str = "mean", group: str = "all") -> float:
        """The relative error of one number.

        Raises:
            KeyError: it was not compared.
        """
        for row in self.rows:
            if (row.group, row.metric, row.statistic) == (group, metric, statistic):
                return row.error
        raise KeyError((group, metric, statistic))


def tpot_s(ttft_s: Floats, e2e_s: Floats, run: MeasuredRun) -> Floats:
    """Mean seconds per output token behind the first; of requests of at least two tokens."""
    several = run.output_tokens > 1
    result: Floats = (e2e_s - ttft_s)[several] / (run.output_tokens[several] - 1)
    return result


def compare(run: MeasuredRun, simulated: Replay) -> Comparison:
    """Score a replay, request groups by the *measured* queue time."""
    everyone = np.ones(len(run), dtype=bool)
    groups = {"all": everyone}
    if run.queue_s is not None:
        waited = run.queue_s >= WAITED_S
        groups |= {"waited": waited, "did not wait": ~waited}
    rows: list[Row] = []
    for group, members in groups.items():
        if not members.any():
            continue
        several = run.output_tokens > 1
        pairs = {
            "TTFT": (run.ttft_s[members], simulated.ttft_s[members]),
            "TPOT": (
                tpot_s(run.ttft_s, run.e2e_s, run)[members[several]],
                tpot_s(simulated.ttft_s, simulated.e2e_s, run)[members[several]],
            ),
            "E2E": (run.e2e_s[members], simulated.e2e_s[members]),
        }
        if run.engine_ttft_s is not None:
            engine = (run.engine_ttft_s[members], simulated.engine_ttft_s[members])
            pairs = {"TTFT": pairs["TTFT"], "engine TTFT": engine, **pairs}
        for metric, (was_s, is_s) in pairs.items():
            if len(was_s):
                rows += _statistics(group, metric, was_s, is_s)
    if run.itl_s is not None and len(run.itl_s) and simulated.itl_tokens.sum():
        gaps_s = np.repeat(simulated.itl_s, simulated.itl_tokens)
        rows += _statistics("all", "ITL", run.itl_s, gaps_s)
    tokens = float(run.output_tokens.sum())
    rows.append(
        Row(
            "all",
            "output tokens/s",
            "mean",
            tokens / float((run.arrival_s + run.e2e_s).max()),
            tokens / float((simulated.sent_s + simulated.e2e_s).max()),
        )
    )
    return Comparison({group: int(members.sum()) for group, members in groups.items()}, tuple(rows))


def _statistics(group: str, metric: str, was_s: Floats, is_s: Floats) -> list[Row]:
    return [
        Row(group, metric, name, _statistic(name, was_s), _statistic(name, is_s))
        for name in STATISTICS
    ]


def _statistic(name: str, values: Floats) -> float:
    return float(values.mean() if name == "mean" else np.percentile(values, int(name[1:])))
