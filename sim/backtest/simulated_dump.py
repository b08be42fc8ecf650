"""A simulated fleet's metrics as vLLM would have exported them, at every scrape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetsim.sim.backtest.openmetrics import le_text
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
    Dump,
    Floats,
    Labels,
    Series,
)
from fleetsim.sim.engine.timed_step_log import TimedStepLog
from fleetsim.sim.fleet import Pool
from fleetsim.sim.request import COMPLETED
from fleetsim.sim.results.histogram import LogHistogram
from fleetsim.sim.results.result import Result
from fleetsim.sim.scenario import Scenario
from fleetsim.sim.simulate import Progress, Simulation
from fleetsim.traces import Trace

Ints = npt.NDArray[np.int64]

_COLUMNS = (
    "pool",
    "replica",
    "outcome",
    "finish_reason",
    "prompt_tokens",
    "cached_tokens",
    "dispatched_s",
    "scheduled_s",
    "first_token_s",
    "last_token_s",
)


class ScrapedFleet:
    """A scenario's run whose replicas are scraped.

    Gauges are read at each scrape; all else is worked out behind the run, from the requests and
    the times of the steps, so that the run is the one that `fleetsim run` makes.

    Args:
        scenario: what to simulate.
        interval_s: between two scrapes; the first is at 0.

    Raises:
        InputError: as `simulate`.
    """

    def __init__(self, scenario: Scenario, interval_s: float) -> None:
        results = scenario.results.model_copy(update={"sample_interval_s": interval_s})
        self._simulation = Simulation(scenario.model_copy(update={"results": results}), None)
        self._logs: dict[int, TimedStepLog] = {}
        self._gaps: dict[int, list[tuple[float, float]]] = {}
        clock = self._simulation.clock
        for pool in self.pools:
            pool.gap_log = self._log_gap
            for replica in pool.replicas:
                log = self._logs[replica.number] = TimedStepLog(clock, pool.steps)
                replica.engine.log_steps(log)
        self._result: Result | None = None

    @property
    def trace(self) -> Trace:
        """The requests, as the scenario's workload section cut them."""
        return self._simulation.parts.trace

    @property
    def pools(self) -> list[Pool]:
        """The fleet."""
        return self._simulation.parts.pools

    def run(self, progress: Progress | None = None) -> Result:
        """Simulate to the end, or until the user stops it; the result's status tells."""
        self._result = self._simulation.run(progress)
        return self._result

    def _log_gap(self, replica: int, gap_s: float) -> None:
        self._gaps.setdefault(replica, []).append((self._simulation.clock.now, gap_s))

    def dump(
        self,
        pools: Sequence[str],
        model: str,
        start_s: float,
        bounds_s: Mapping[str, Floats],
        name: str = "simulated",
    ) -> Dump:
        """Every scrape of the run, which must have been made.

        Args:
            pools: names of those that count.
            model: the label model_name.
            start_s: of the run, in seconds since 1970.
            bounds_s: upper bounds of the buckets of TTFT and ITL, the last infinite.
            name: of the dump.
        """
        assert self._result is not None
        series: dict[str, dict[Labels, Series]] = {}
        timeline = self._result.timeline()
        requests = self._result.columns("requests", _COLUMNS)
        for pool in self.pools:
            if pool.name not in pools:
                continue
            for replica in pool.replicas:
                mine = timeline[timeline["replica"] == replica.number]
                rows = {
                    column: values[
                        (requests["replica"] == replica.number) & (requests["pool"] == pool.name)
                    ]
                    for column, values in requests.items()
                }
                labels = (
                    ("engine", "0"),
                    ("instance", f"{pool.name}-{replica.number}"),
                    ("model_name", model),
                )
                at_s = mine["t_s"].to_numpy(np.float64)
                values: dict[tuple[str, Labels], Floats] = {
                    (RUNNING, labels): mine["running"].to_numpy(np.float64),
                    (WAITING, labels): mine["waiting"].to_numpy(np.float64),
                    (KV_USAGE, labels): mine["kv_usage"].to_numpy(np.float64),
                }
                self._add_requests(values, labels, at_s, rows, bounds_s[TTFT])
                self._add_gaps(values, labels, at_s, replica.number, bounds_s[ITL])
                # Each output token is a request's first, or ends a gap.
                values[GENERATION_TOKENS, labels] = (
                    values[TTFT + "_count", labels] + values[ITL + "_count", labels]
                )
                for (metric, full), numbers in values.items():
                    series.setdefault(metric, {})[full] = Series(start_s + at_s, numbers)
        return Dump(name, series)

    def latencies(
        self, pools: Sequence[str], start_s: float, end_s: float
    ) -> dict[str, LogHistogram]:
        """TTFT and ITL of the run, which must have been made, in a part of it and in fine bins.

        Args:
            pools: names of those that count.
            start_s, end_s: from after the one up to the other, in seconds of the run.
        """
        assert self._result is not None
        found = {TTFT: LogHistogram(), ITL: LogHistogram()}

        def add(metric: str, when_s: Floats, took_s: Floats, weight: Ints) -> None:
            within = (when_s > start_s) & (when_s <= end_s)
            found[metric].add(took_s[within], weight[within])

        requests = self._result.columns("requests", _COLUMNS)
        rows = np.isin(requests["pool"], pools)
        first_s = requests["first_token_s"][rows]
        ttft_s = first_s - requests["dispatched_s"][rows]
        add(TTFT, first_s, ttft_s, np.ones(len(first_s), np.int64))
        for pool in self.pools:
            for replica in pool.replicas if pool.name in pools else ():
                for ended_s, took_s, n_decodes in self._logs[replica.number].steps():
                    add(ITL, ended_s, took_s, n_decodes)
                gaps = self._gaps_of(replica.number)
                add(ITL, gaps[:, 0], gaps[:, 1], np.ones(len(gaps), np.int64))
        return found

    def _gaps_of(self, replica: int) -> Floats:
        return np.array(self._gaps.get(replica, []), dtype=np.float64).reshape(-1, 2)

    @staticmethod
    def _add_requests(
        values: dict[tuple[str, Labels], Floats],
        labels: Labels,
        at_s: Floats,
        rows: Mapping[str, Any],
        bounds_s: Floats,
    ) -> None:
        first_s = rows["first_token_s"]
        got = ~np.isnan(first_s)
        ttft_s = (first_s - rows["dispatched_s"])[got]
        tally = _Tally(at_s, bounds_s)
        tally.add(first_s[got], ttft_s, np.ones(len(ttft_s)))
        tally.put_into(values, TTFT, labels)
        prompts = rows["prompt_tokens"].astype(np.float64)
        values[PROMPT_TOKENS, labels] = _totals(at_s, first_s[got], prompts[got])
        began = ~np.isnan(rows["scheduled_s"])
        scheduled_s = rows["scheduled_s"][began]
        cached = rows["cached_tokens"].astype(np.float64)
        values[PREFIX_QUERIES, labels] = _totals(at_s, scheduled_s, prompts[began])
        values[PREFIX_HITS, labels] = _totals(at_s, scheduled_s, cached[began])
        for reason in ("length", "stop"):
            ended = (rows["outcome"] == COMPLETED) & (rows["finish_reason"] == reason)
            full = tuple(sorted((*labels, ("finished_reason", reason))))
            ended_s = rows["last_token_s"][ended]
            values[SUCCESS, full] = _totals(at_s, ended_s, np.ones(len(ended_s)))

    def _add_gaps(
        self,
        values: dict[tuple[str, Labels], Floats],
        labels: Labels,
        at_s: Floats,
        replica: int,
        bounds_s: Floats,
    ) -> None:
        tally = _Tally(at_s, bounds_s)
        for ended_s, took_s, n_decodes in self._logs[replica].steps():
            tally.add(ended_s, took_s, n_decodes.astype(np.float64))
        gaps = self._gaps_of(replica)
        tally.add(gaps[:, 0], gaps[:, 1], np.ones(len(gaps)))
        tally.put_into(values, ITL, labels)


class _Tally:
    """Observations by scrape and bucket."""

    def __init__(self, at_s: Floats, bounds_s: Floats) -> None:
        self._at_s = at_s
        self._bounds_s = bounds_s
        # One row more: what happens after the last scrape.
        self._counts = np.zeros((len(at_s) + 1, len(bounds_s)))
        self._sums = np.zeros(len(at_s) + 1)

    def add(self, when_s: Floats, took_s: Floats, weight: Floats) -> None:
        scrape = np.searchsorted(self._at_s, when_s, side="left")
        bucket = np.searchsorted(self._bounds_s, took_s, side="left")
        np.add.at(self._counts, (scrape, bucket), weight)
        np.add.at(self._sums, scrape, weight * took_s)

    def put_into(
        self, values: dict[tuple[str, Labels], Floats], metric: str, labels: Labels
    ) -> None:
        cumulative = self._counts[:-1].cumsum(axis=0).cumsum(axis=1)
        for index, bound_s in enumerate(self._bounds_s):
            full = tuple(sorted((*labels, ("le", le_text(bound_s)))))
            values[metric + "_bucket", full] = cumulative[:, index]
        values[metric + "_count", labels] = cumulative[:, -1]
        values[metric + "_sum", labels] = self._sums[:-1].cumsum()


def _totals(at_s: Floats, when_s: Floats, amounts: Floats) -> Floats:
    """Sum of all amounts up to each scrape."""
    sums = np.zeros(len(at_s) + 1)
    np.add.at(sums, np.searchsorted(at_s, when_s, side="left"), amounts)
    return sums[:-1].cumsum()
