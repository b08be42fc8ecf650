"""A simulated fleet against a measured one: first whether they can be compared, then each metric.

Only what the same requests did on the same replicas can be compared. So arrivals, prompt and
output lengths and the number of replicas come first, and where one of them differs nothing else is
judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from fleetsim.sim.backtest.fleet_series import FleetSeries, Ints
from fleetsim.sim.backtest.prometheus_dump import (
    GENERATION_TOKENS,
    ITL,
    KV_USAGE,
    PREFIX_HITS,
    PREFIX_QUERIES,
    PROMPT_TOKENS,
    RUNNING,
    SUCCESS,
    TTFT,
    WAITING,
    Floats,
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
from fleetsim.traces.errors import InputError

QUANTILES = (0.5, 0.9, 0.99)
_TAIL = 2.0  # a tail's tolerance over a mean's
_WAITS_OFTEN = 0.5
_SHARE_FLOOR = 0.01  # of KV usage and hit rate: a difference that says nothing
_LARGEST_LE_S = 1e4  # vLLM's own largest bound is 7,680 s
_ALIKE = 0.9  # share of the scrapes with the scenario's number of replicas
_LITTLE = 30.0  # milliseconds for seconds would be 1,000


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What is close enough.

    Attributes:
        mean: relative, of means and medians; p90 and p99 get twice that.
        load: relative, of arrivals and prompt lengths; output lengths get twice that.
        requests: difference per replica in running or waiting requests that says nothing.
    """

    mean: float = 0.10
    load: float = 0.05
    requests: float = 0.1


@dataclass(frozen=True, slots=True)
class Premise:
    """One thing that must be alike before anything is compared."""

    name: str
    measured: float
    simulated: float
    holds: bool
    reason: str


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
    _refuse_other_units(measured, dump_name)
    premises = tuple(_premises(measured, simulated, tolerances))
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


def _refuse_other_units(fleet: FleetSeries, name: str) -> None:
    usage = fleet.gauges[KV_USAGE]
    if (usage > 1.0 + 1e-6).any():
        raise InputError(
            f"{name}: {KV_USAGE} is {np.nanmax(usage):g}; vLLM's is a share from 0 to 1, so give "
            "it without the factor 100"
        )
    window_s = fleet.window.end_s - fleet.window.start_s
    inside = np.nanmean(fleet.gauges[RUNNING])
    waiting = np.nanmean(fleet.gauges[WAITING])
    for metric, most, what in (
        (ITL, inside, "decode"),
        (TTFT, inside + waiting, "wait for their first token"),
    ):
        histogram = fleet.histograms[metric]
        largest_s = histogram.bounds_s[-2] if len(histogram.bounds_s) > 1 else 0.0
        if largest_s > _LARGEST_LE_S:
            raise InputError(
                f"{name}: {metric}_bucket has a bound le={largest_s:g}; in seconds that is hours, "
                "so these are milliseconds? give vLLM's own series"
            )
        # Little's law: seconds spent per second is how many requests spend them.
        busy = float(histogram.sums_s[-1]) / window_s
        if busy > _LITTLE * (most + 0.1):
            raise InputError(
                f"{name}: by {metric}_sum {busy:,.0f} requests {what} at any time, by the gauges "
                f"{most:.1f} are there at all; one of them is in another unit (milliseconds?)"
            )


def _premises(
    measured: FleetSeries, simulated: FleetSeries, tolerances: Tolerances
) -> list[Premise]:
    replicas = float(simulated.replicas.max())
    alike = float(np.mean(measured.replicas == replicas))
    held = alike >= _ALIKE
    premises = [
        Premise(
            "replicas",
            float(measured.replicas.mean()),
            replicas,
            held,
            ""
            if held
            else f"the dump has {replicas:.0f}, as the scenario, in {percent(alike, 2)} of the "
            "scrapes",
        )
    ]
    few = 3.0 * replicas
    for name, load, floor, amounts in (
        ("arrivals", tolerances.load, few, [_arrivals(f) for f in (measured, simulated)]),
        (
            "prompt tokens per request",
            tolerances.load,
            1.0,
            [_per(f, PROMPT_TOKENS, None) for f in (measured, simulated)],
        ),
        (
            "output tokens per request",
            2 * tolerances.load,
            1.0,
            [_per(f, GENERATION_TOKENS, SUCCESS) for f in (measured, simulated)],
        ),
    ):
        was, is_ = amounts
        if not (isfinite(was) and isfinite(is_)):
            premises.append(Premise(name, was, is_, True, "not in the dump, so not compared"))
            continue
        holds = abs(is_ - was) <= max(load * was, floor)
        reason = (
            ""
            if holds
            else f"more than {percent(load, 2)} apart: other traffic, or some of it never reached "
            "an engine"
        )
        premises.append(Premise(name, was, is_, holds, reason))
    lag_s = _lag_s(measured, simulated)
    premises.append(
        Premise(
            "arrivals over time",
            lag_s,
            0.0,
            lag_s == 0.0,
            ""
            if lag_s == 0.0
            else f"the dump's first tokens come {abs(lag_s):g} s "
            f"{'after' if lag_s > 0 else 'before'} the trace's; check --trace-start",
        )
    )
    return premises


def _arrivals(fleet: FleetSeries) -> float:
    """First tokens, and by how many requests the queue grew."""
    waiting = fleet.gauges[WAITING]
    there = waiting[~np.isnan(waiting)]
    grown = float(there[-1] - there[0]) if len(there) else 0.0
    return float(fleet.histograms[TTFT].counts[-1]) + grown


def _per(fleet: FleetSeries, tokens: str, requests: str | None) -> float:
    totals = fleet.counters.get(tokens)
    counts = fleet.histograms[TTFT].counts if requests is None else fleet.counters.get(requests)
    if totals is None or counts is None or counts[-1] <= 0:
        return nan
    return float(totals[-1] / counts[-1])


def _lag_s(measured: FleetSeries, simulated: FleetSeries) -> float:
    """By how much later the measured first tokens come, where that is plain; else 0.

    Counts per scrape of both are laid over each other, shifted by up to a quarter of the window.
    """
    was, is_ = (np.diff(f.histograms[TTFT].counts) for f in (measured, simulated))
    most = len(was) // 4

    def fit(lag: int) -> float:
        a, b = (was[lag:], is_[: len(is_) - lag]) if lag >= 0 else (was[:lag], is_[-lag:])
        return correlation(a, b)

    fits = {lag: fit(lag) for lag in range(-most, most + 1)}
    fits = {lag: r for lag, r in fits.items() if isfinite(r)}
    if 0 not in fits:
        return 0.0
    best = max(fits, key=lambda lag: (fits[lag], -abs(lag)))
    plain = abs(best) > 1 and fits[best] > 0.6 and fits[best] > fits[0] + 0.3
    return best * measured.window.interval_s if plain else 0.0


def correlation(measured: Floats, simulated: Floats) -> float:
    """Pearson's, over the samples that both have; NaN where one of them does not vary."""
    there = ~(np.isnan(measured) | np.isnan(simulated))
    a, b = measured[there], simulated[there]
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return nan
    return float(np.corrcoef(a, b)[0, 1])


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
