"""Whether two fleets can be compared at all: the same replicas, requests and lengths, then."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from fleetsim.sim.backtest.fleet_series import FleetSeries
from fleetsim.sim.backtest.prometheus_dump import (
    GENERATION_TOKENS,
    ITL,
    KV_USAGE,
    PROMPT_TOKENS,
    RUNNING,
    SUCCESS,
    TTFT,
    WAITING,
    Floats,
)
from fleetsim.sim.report.format import percent
from fleetsim.traces.errors import InputError

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


def refuse_other_units(fleet: FleetSeries, name: str) -> None:
    """Hold the numbers of a dump against each other.

    Raises:
        InputError: one of them must be in another unit than vLLM's.
    """
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


def load_premises(
    measured: FleetSeries, simulated: FleetSeries, tolerances: Tolerances
) -> list[Premise]:
    """The load of both: replicas, arrivals, lengths, and when the first tokens came."""
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
