"""A dump's series as one fleet's, cut to a window: what a measured and a simulated dump share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetsim.sim.backtest.prometheus_dump import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    KV_USAGE,
    RUNNING,
    TTFT,
    Dump,
    Floats,
    Labels,
    Series,
    replica_name,
    replica_of,
)
from fleetsim.traces.errors import InputError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BLOCKS = 10
"""Parts of the window whose spread tells the sampling error."""
_FEWEST_SCRAPES = 20
_STALE_INTERVALS = 2.5  # a gauge older than that is a gap
_TIME_S = 1e-3  # Prometheus' resolution


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is compared, a whole number of scrape intervals.

    Attributes:
        start_s, end_s: in seconds since 1970.
        interval_s: between two scrapes.
    """

    start_s: float
    end_s: float
    interval_s: float

    @property
    def grid_s(self) -> Floats:
        """The times at which gauges are compared."""
        steps = round((self.end_s - self.start_s) / self.interval_s)
        return self.start_s + self.interval_s * np.arange(steps + 1, dtype=np.float64)

    @property
    def edges(self) -> Ints:
        """Positions in the grid at which one block ends and the next begins."""
        return np.rint(np.linspace(0, len(self.grid_s) - 1, BLOCKS + 1)).astype(np.int64)


def scrape_interval_s(dump: Dump) -> float:
    """The usual time between two samples of a gauge.

    Raises:
        InputError: there are no two samples.
    """
    gaps = [np.diff(one.times_s) for one in dump.of(RUNNING).values()]
    every = np.concatenate(gaps)
    if not len(every):
        raise InputError(f"{dump.name}: {RUNNING} has one sample a series; export a span of time")
    return float(round(float(np.median(every)), 3))


def coverage_s(dump: Dump) -> tuple[float, float]:
    """From when to when every metric has samples of some replica."""
    spans = [
        (
            min(one.times_s[0] for one in series.values()),
            max(one.times_s[-1] for one in series.values()),
        )
        for series in dump.series.values()
        if series
    ]
    return max(start for start, _ in spans), min(end for _, end in spans)


def common_window(
    dump: Dump, trace_name: str, trace_start_s: float, first_s: float, last_s: float
) -> Window:
    """Where the dump and the measured part of the trace overlap, on the simulation's samples.

    Args:
        dump: the export.
        trace_name: for messages.
        trace_start_s: when the trace's first request arrived, in seconds since 1970.
        first_s, last_s: of the trace that count, in seconds since its first request.

    Raises:
        InputError: they do not overlap, or in fewer than 20 scrapes.
    """
    interval_s = scrape_interval_s(dump)
    begin_s, end_s = coverage_s(dump)
    low = np.ceil((max(first_s, begin_s - trace_start_s) - _TIME_S) / interval_s)
    high = np.floor((min(last_s, end_s - trace_start_s) + _TIME_S) / interval_s)
    if high - low < _FEWEST_SCRAPES:
        how = "do not overlap" if high <= low else f"share only {high - low:.0f} scrapes"
        raise InputError(
            f"{dump.name} covers {utc(begin_s)} to {utc(end_s)} (a sample each {interval_s:g} s) "
            f"and {trace_name} {utc(trace_start_s + first_s)} to {utc(trace_start_s + last_s)}: "
            f"they {how}; at least {_FEWEST_SCRAPES} scrapes are needed, so check --trace-start "
            "and its time zone, or export the trace's time"
        )
    return Window(
        trace_start_s + float(low) * interval_s,
        trace_start_s + float(high) * interval_s,
        interval_s,
    )


def utc(time_s: float) -> str:
    """A time as people write it, in UTC."""
    return str(np.datetime64(round(time_s * 1e3), "ms").astype("datetime64[s]")) + "Z"


@dataclass(frozen=True, slots=True)
class Histogram:
    """A fleet's histogram over the window.

    Attributes:
        bounds_s: upper bounds of the buckets; the last is infinite.
        cumulative: observations up to each bound since the window began, by grid time and bound.
        sums_s: sum of the observations since the window began, by grid time.
    """

    bounds_s: Floats
    cumulative: Floats
    sums_s: Floats

    @property
    def counts(self) -> Floats:
        """Observations since the window began, by grid time."""
        return self.cumulative[:, -1]

    @property
    def mean_s(self) -> float:
        """Of all observations in the window; NaN if there is none."""
        count = float(self.counts[-1])
        return float(self.sums_s[-1]) / count if count > 0 else float("nan")

    def bucket(self, q: float) -> int:
        """The bucket in which a quantile lies."""
        row = self.cumulative[-1]
        return int(np.searchsorted(row, q * row[-1]))

    def edges_s(self, bucket: int) -> tuple[float, float]:
        """Lower and upper bound of a bucket."""
        return float(self.bounds_s[bucket - 1]) if bucket else 0.0, float(self.bounds_s[bucket])

    def quantile_s(self, q: float) -> float:
        """As PromQL's histogram_quantile: linear within the bucket, its bound in the last one."""
        row, bucket = self.cumulative[-1], self.bucket(q)
        low, high = self.edges_s(bucket)
        if np.isinf(high):
            return low
        before = float(row[bucket - 1]) if bucket else 0.0
        inside = float(row[bucket]) - before
        return low + (high - low) * ((q * float(row[-1]) - before) / inside if inside else 1.0)


@dataclass(frozen=True, slots=True)
class FleetSeries:
    """One fleet in a window.

    Attributes:
        window: the time.
        replicas: how many there are, at the grid's times: a series of the running gauge each,
            from its first sample to its last.
        histograms: by metric.
        gauges: at the grid's times; requests are the fleet's sum, KV usage the replicas' mean.
            NaN where a replica's sample is missing.
        counters: since the window began, at the grid's times; those that the dump has.
        remarks: restarts, gaps, replicas that come or go; one line each.
    """

    window: Window
    replicas: Ints
    histograms: dict[str, Histogram]
    gauges: dict[str, Floats]
    counters: dict[str, Floats]
    remarks: tuple[str, ...]


def bucket_bounds_s(dump: Dump, metric: str) -> Floats:
    """Upper bounds of a histogram's buckets, rising.

    Raises:
        InputError: the last is not +Inf, a label `le` is no number, or replicas differ.
    """
    bounds: dict[Labels, list[float]] = {}
    for labels in dump.of(metric + "_bucket"):
        text = dict(labels).get("le", "")
        try:
            bounds.setdefault(replica_of(labels), []).append(float(text))
        except ValueError:
            raise InputError(
                f"{dump.name}: {metric}_bucket has le={text!r}; must be a number or +Inf"
            ) from None
    first: list[float] | None = None
    for replica, some in bounds.items():
        some.sort()
        if not np.isinf(some[-1]):
            raise InputError(
                f'{dump.name}: {metric}_bucket of {replica_name(replica)} has no le="+Inf"; '
                "export all buckets"
            )
        if first is not None and some != first:
            raise InputError(
                f"{dump.name}: {metric}_bucket of {replica_name(replica)} has other bounds le "
                "than the first replica; export all buckets, of one version of vLLM"
            )
        first = some
    assert first is not None  # the metric is needed
    return np.array(first)


def fleet_series(dump: Dump, window: Window) -> FleetSeries:
    """One model's series of a dump, cut to the window and summed over replicas.

    Counters are taken to rise evenly between two scrapes; a fall is a restart from 0, as in
    PromQL's increase.

    Raises:
        InputError: histograms without +Inf, not cumulative, or of unequal buckets.
    """
    grid_s = window.grid_s
    remarks = _remarks(dump, window)
    histograms = {name: _histogram(dump, name, grid_s) for name in HISTOGRAMS}
    gauges = {name: _gauge(dump, name, window) for name in GAUGES}
    counters = {
        name: np.sum([_risen(one, grid_s) for one in dump.of(name).values()], axis=0)
        for name in COUNTERS
        if dump.of(name)
    }
    replicas = np.sum([_alive(one, window) for one in dump.of(RUNNING).values()], axis=0)
    return FleetSeries(window, replicas, histograms, gauges, counters, tuple(remarks))


def _in_window(one: Series, window: Window) -> Bools:
    within = (one.times_s >= window.start_s - _TIME_S) & (one.times_s <= window.end_s + _TIME_S)
    return within & ~np.isnan(one.values)


def _alive(one: Series, window: Window) -> Bools:
    """When, on the window's grid, a replica is there."""
    seen_s = one.times_s[~np.isnan(one.values)]
    if not len(seen_s):
        return np.zeros(len(window.grid_s), dtype=np.bool_)
    grid_s = window.grid_s
    # A sample speaks for the time up to the next one.
    alive: Bools = (grid_s >= seen_s[0] - _TIME_S) & (grid_s < seen_s[-1] + window.interval_s)
    return alive


def _risen(one: Series, times_s: Floats) -> Floats:
    """What a counter has risen since the first of the times, at each of them."""
    there = ~np.isnan(one.values)
    at_s, values = one.times_s[there], one.values[there]
    if len(values) < 2:
        return np.zeros(len(times_s))
    steps = np.diff(values)
    steps = np.where(steps < 0, values[1:], steps)
    total: Floats = np.interp(times_s, at_s, np.r_[0.0, np.cumsum(steps)])
    return total - float(total[0])


def _histogram(dump: Dump, metric: str, grid_s: Floats) -> Histogram:
    bounds_s = bucket_bounds_s(dump, metric)
    cumulative = np.zeros((len(grid_s), len(bounds_s)))
    by_replica: dict[Labels, dict[float, Series]] = {}
    for labels, one in dump.of(metric + "_bucket").items():
        by_replica.setdefault(replica_of(labels), {})[float(dict(labels)["le"])] = one
    sums, counts = dump.of(metric + "_sum"), dump.of(metric + "_count")
    for replica, buckets in by_replica.items():
        for part, there in (("_sum", sums), ("_count", counts)):
            if replica not in there:
                raise InputError(
                    f"{dump.name}: {metric}{part} of {replica_name(replica)} is missing; export "
                    f"{metric}_bucket, _sum and _count with the same labels"
                )
        risen = np.column_stack([_risen(buckets[bound], grid_s) for bound in bounds_s])
        if (np.diff(risen[-1]) < -1e-6 * (1.0 + risen[-1, -1])).any():
            bad = int(np.diff(risen[-1]).argmin()) + 1
            raise InputError(
                f"{dump.name}: {metric}_bucket of {replica_name(replica)} is not cumulative: "
                f"le={bounds_s[bad]:g} rose by {risen[-1, bad]:,.0f}, le={bounds_s[bad - 1]:g} by "
                f"{risen[-1, bad - 1]:,.0f}; export the buckets as they are"
            )
        cumulative += risen
    sums_s = np.sum([_risen(one, grid_s) for one in sums.values()], axis=0)
    return Histogram(bounds_s, cumulative, sums_s)


def _gauge(dump: Dump, metric: str, window: Window) -> Floats:
    grid_s = window.grid_s
    total: Floats = np.zeros(len(grid_s))
    alive: Floats = np.zeros(len(grid_s))
    for one in dump.of(metric).values():
        at = np.searchsorted(one.times_s, grid_s + _TIME_S, side="right") - 1
        fresh = (at >= 0) & (grid_s - one.times_s[at] <= _STALE_INTERVALS * window.interval_s)
        values = np.where(fresh, one.values[at], np.nan)
        there = _alive(one, window)
        # before its first and after its last sample a replica is not missing, but not there
        total += np.where(there, values, 0.0)
        alive += there
    if metric == KV_USAGE:
        total = np.divide(total, np.maximum(alive, 1.0))
    return np.where(alive > 0, total, np.nan)


def _remarks(dump: Dump, window: Window) -> list[str]:
    remarks = []
    for labels, one in dump.of(RUNNING).items():
        name = replica_name(labels)
        inside = _in_window(one, window)
        times_s = one.times_s[inside]
        if not len(times_s):
            remarks.append(f"{name} has no samples in the window")
            continue
        late_s = _STALE_INTERVALS * window.interval_s
        if times_s[0] > window.start_s + late_s:
            remarks.append(f"{name} begins at {utc(times_s[0])}, in the middle of the window")
        if times_s[-1] < window.end_s - late_s:
            remarks.append(f"{name} ends at {utc(times_s[-1])}, in the middle of the window")
        gaps = np.diff(times_s)
        if (gaps > late_s).any():
            remarks.append(
                f"{name} has {int((gaps > late_s).sum())} gaps, {gaps[gaps > late_s].sum():.0f} s "
                "in all; gauges in them are left out, counters taken to rise evenly"
            )
    for labels, one in dump.of(TTFT + "_count").items():
        inside = _in_window(one, window)
        values, times_s = one.values[inside], one.times_s[inside]
        for index in np.flatnonzero(np.diff(values) < 0):
            remarks.append(
                f"{replica_name(labels)} restarted before {utc(times_s[index + 1])}: what it "
                "counted since the last scrape is lost, and the simulated one did not restart"
            )
    return remarks
