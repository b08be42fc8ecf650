"""A simulated fleet against a measured one: first whether they can be compared, then each metric.

Only what the same requests did on the same replicas can be compared. So arrivals, prompt and
output lengths and the number of replicas come first, and where one of them differs nothing else is
judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan

import numpy as np

from fleetsim.sim.backtest.fleet_series import FleetSeries, Ints
from fleetsim.sim.backtest.premises import (
    Premise,
    Tolerances,
    correlation,
    load_premises,
    refuse_other_units,
)
from fleetsim.sim.backtest.prometheus_dump import (
    GENERATION_TOKENS,
    ITL,
    KV_USAGE,
    PREFIX_HITS,
    PREFIX_QUERIES,
    PROMPT_TOKENS,
    RUNNING,
    TTFT,
    WAITING,
)
from fleetsim.sim.backtest.verdict import (
    CANNOT_TELL,
    DO_NOT_TRUST,
    TRUST,
    Ratio,
    Statistic,
    judge_mean,
    judge_peak,
    judge_quantile,
)
from fleetsim.sim.report.format import percent
from fleetsim.sim.results.histogram import LogHistogram

QUANTILES = (0.5, 0.9, 0.99)
_TAIL = 2.0  # a tail's tolerance over a mean's
_WAITS_OFTEN = 0.5
_SHARE_FLOOR = 0.01  # of KV usage and hit rate: a difference that says nothing


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric's verdict.

    Attributes:
        key: its name in Prometheus.
        title: as the report calls it.
        unit: "s", "requests", "share" or "tokens/s".
        statistics: what was compared; the first decides, and any other can only spoil it.
        correlation: of a gauge's samples over time, NaN where it does not vary.
    """

    key: str
    title: str
    unit: str
    statistics: tuple[Statistic, ...]
    verdict: str
    reason: str
    correlation: float = nan


@dataclass(frozen=True, slots=True)
class FleetCheck:
    """Premises, then metrics."""

    premises: tuple[Premise, ...]
    metrics: tuple[Metric, ...]

    @property
    def comparable(self) -> bool:
        """Whether every premise holds."""
        return all(premise.holds for premise in self.premises)


def check_fleet(
    measured: FleetSeries,
    simulated: FleetSeries,
    latencies: Mapping[str, LogHistogram],
    tolerances: Tolerances,
    dump_name: str,
) -> FleetCheck:
    """Judge every metric that both have.

    Args:
        measured, simulated: both fleets in the window.
        latencies: the simulated fleet's TTFT and ITL in the window, in fine bins.
        tolerances: what is close enough.
        dump_name: for messages.

    Raises:
        InputError: the measured numbers contradict each other, as in another unit.
    """
    refuse_other_units(measured, dump_name)
    premises = tuple(load_premises(measured, simulated, tolerances))
    failed = [premise.name for premise in premises if not premise.holds]
    metrics = [
        *_latencies(measured, simulated, latencies, tolerances),
        *_gauges(measured, simulated, tolerances),
        *_rates(measured, simulated, tolerances),
    ]
    if failed:
        reason = f"not comparable: {', '.join(failed)} differ"
        metrics = [
            Metric(m.key, m.title, m.unit, m.statistics, DO_NOT_TRUST, reason, m.correlation)
            for m in metrics
        ]
    return FleetCheck(premises, tuple(metrics))


def _metric(
    key: str,
    title: str,
    unit: str,
    statistics: list[Statistic],
    note: str = "",
    over_time: float = nan,
) -> Metric:
    bad = [s for s in statistics if s.verdict == DO_NOT_TRUST]
    first = statistics[0]
    if bad:
        verdict, reason = DO_NOT_TRUST, f"{bad[0].name} {bad[0].reason}"
    else:
        verdict, reason = first.verdict, f"{first.name} {first.reason}"
        untold = [s.name for s in statistics[1:] if s.verdict == CANNOT_TELL]
        if verdict == TRUST and untold:
            reason += f"; {', '.join(untold)} cannot be told"
    return Metric(
        key,
        title,
        unit,
        tuple(statistics),
        verdict,
        reason + (f"; {note}" if note else ""),
        over_time,
    )


def _latencies(
    measured: FleetSeries,
    simulated: FleetSeries,
    fine: Mapping[str, LogHistogram],
    tolerances: Tolerances,
) -> list[Metric]:
    edges = measured.window.edges
    waits = float(np.nanmean(measured.gauges[WAITING] > 0))
    queueing = (
        f"requests waited in {percent(waits, 2)} of the scrapes, so this is the queue more than "
        "the engine"
        if waits > _WAITS_OFTEN
        else ""
    )
    metrics = []
    for key, title, note in ((TTFT, "TTFT", queueing), (ITL, "ITL", "")):
        was, is_ = measured.histograms[key], simulated.histograms[key]
        statistics = [
            judge_mean(
                Ratio.of_totals(was.sums_s, was.counts, edges),
                Ratio.of_totals(is_.sums_s, is_.counts, edges),
                tolerances.mean,
                0.0,
            )
        ]
        for q in QUANTILES:
            tolerance = tolerances.mean * (_TAIL if q > 0.5 else 1.0)
            simulated_s = fine[key].quantile(q)
            statistics.append(judge_quantile(was, is_, simulated_s, q, tolerance, edges))
        metrics.append(_metric(key, title, "s", statistics, note))
    return metrics


def _gauges(measured: FleetSeries, simulated: FleetSeries, tolerances: Tolerances) -> list[Metric]:
    edges = measured.window.edges
    requests = tolerances.requests * float(simulated.replicas.max())
    metrics = []
    for key, title, unit, floor, whole in (
        (RUNNING, "running", "requests", requests, 1.0),  # a count at a time: one more or less
        (WAITING, "waiting", "requests", requests, 1.0),
        (KV_USAGE, "KV usage", "share", _SHARE_FLOOR, 0.0),
    ):
        was, is_ = measured.gauges[key], simulated.gauges[key]
        # A sample that one side lacks is left out of both.
        there = ~(np.isnan(was) | np.isnan(is_))
        was, is_ = np.where(there, was, np.nan), np.where(there, is_, np.nan)
        statistics = [
            judge_mean(
                Ratio.of_samples(was, edges), Ratio.of_samples(is_, edges), tolerances.mean, floor
            ),
            judge_peak(was, is_, _TAIL * tolerances.mean, max(_TAIL * floor, whole)),
        ]
        missing = 1.0 - float(there.mean())
        note = f"{percent(missing, 2)} of the scrapes are missing" if missing > 0.05 else ""
        metrics.append(_metric(key, title, unit, statistics, note, correlation(was, is_)))
    return metrics


def _rates(measured: FleetSeries, simulated: FleetSeries, tolerances: Tolerances) -> list[Metric]:
    window = measured.window
    edges: Ints = window.edges
    elapsed_s = window.grid_s - window.start_s
    metrics = []
    for key, over, title, unit, floor in (
        (PREFIX_HITS, PREFIX_QUERIES, "prefix hit rate", "share", _SHARE_FLOOR),
        (PROMPT_TOKENS, None, "prompt tokens", "tokens/s", 0.0),
        (GENERATION_TOKENS, None, "output tokens", "tokens/s", 0.0),
    ):
        pair = []
        for fleet in (measured, simulated):
            totals = fleet.counters.get(key)
            weights = elapsed_s if over is None else fleet.counters.get(over)
            if totals is not None and weights is not None:
                pair.append(Ratio.of_totals(totals, weights, edges))
        if len(pair) == 2:
            statistic = judge_mean(pair[0], pair[1], tolerances.mean, floor)
        else:
            absent = "not in the dump"
            statistic = Statistic("mean", nan, nan, nan, nan, CANNOT_TELL, absent)
        metrics.append(_metric(key, title, unit, [statistic]))
    return metrics
