"""What is looked at on a schedule: scraped gauges, and the time series of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetsim.sim.clock import SCRAPE, Clock, rank
from fleetsim.sim.fleet import Pool
from fleetsim.sim.results.recorder import Recorder


class Scraper:
    """Refreshes the gauges that policies see, every `interval_s`, of the pools that read them."""

    __slots__ = ("_clock", "_interval_s", "_pools", "_round")

    def __init__(self, clock: Clock, pools: Sequence[Pool], interval_s: float) -> None:
        self._clock = clock
        self._pools = [pool for pool in pools if pool.needs_scraped]
        self._interval_s = interval_s
        self._round = 0

    def start(self) -> None:
        """Scrape at 0 and then on."""
        if self._pools:
            self._clock.at(0.0, rank(SCRAPE, 0), self._scrape)

    def _scrape(self, _alarm: Any) -> None:
        for pool in self._pools:
            for replica in pool.replicas:
                replica.scrape()
        self._round += 1
        self._clock.at(self._round * self._interval_s, rank(SCRAPE, 0), self._scrape)


class Sampler:
    """Writes the timeline: each replica's state every `interval_s`.

    Between two samples a replica's KV usage counts as that of the first.
    """

    __slots__ = ("_clock", "_interval_s", "_pools", "_recorder", "_round", "_sampled_s", "_usage")

    def __init__(
        self, clock: Clock, pools: Sequence[Pool], interval_s: float, recorder: Recorder
    ) -> None:
        self._clock = clock
        self._pools = pools
        self._interval_s = interval_s
        self._recorder = recorder
        self._round = 0
        self._sampled_s = 0.0
        self._usage: dict[int, float] = {}

    def start(self) -> None:
        """Sample at 0 and then on."""
        self._clock.at(0.0, rank(SCRAPE, 1), self._sample)

    def close(self) -> None:
        """The simulation ends now."""
        elapsed_s = self._clock.now - self._sampled_s
        for pool in self._pools:
            for replica in pool.replicas:
                replica.kv_usage_integral_s += self._usage.get(replica.number, 0.0) * elapsed_s
        self._sampled_s = self._clock.now

    def _sample(self, _alarm: Any) -> None:
        self.close()
        now = self._clock.now
        sample = self._recorder.sample
        for pool in self._pools:
            ready = len(pool.view.replicas)
            for replica in pool.replicas:
                usage = self._usage[replica.number] = replica.kv_usage()
                if usage > replica.kv_usage_max:
                    replica.kv_usage_max = usage
                engine = replica.engine
                sample(
                    now,
                    pool.name,
                    replica.number,
                    engine.num_requests_running(),
                    engine.num_requests_waiting(),
                    usage,
                    ready,
                )
        self._round += 1
        self._clock.at(self._round * self._interval_s, rank(SCRAPE, 1), self._sample)
