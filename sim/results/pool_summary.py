"""A pool's part of the summary: how full it was, in each sense, and whether the books balance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import nan
from typing import Any

import numpy as np

from fleetsim.sim.results.facts import PoolFacts, ReplicaRecord, RunFacts
from fleetsim.sim.results.measures import Array
from fleetsim.sim.results.slo import finite_or_none
from fleetsim.sim.results.store import Store
from fleetsim.sim.results.tally import PoolTally


def pool_summary(
    pool: PoolFacts, tally: PoolTally, facts: RunFacts, queues: dict[str, Any]
) -> dict[str, Any]:
    """The pool's section of the summary; `fleetsim.sim.results.definitions` defines each number."""
    replicas = [replica for replica in facts.replicas if replica.pool == pool.name]
    window_s = facts.window_end_s - facts.window_start_s
    offered_per_s = divide(tally.dispatched_in_window, window_s)
    return {
        "model": pool.model,
        "profile": pool.profile,
        "engine": pool.engine,
        "replicas": len(replicas),
        "gpus": sum(replica.gpus for replica in replicas),
        "dispatched": tally.dispatched,
        "offered_per_s": finite_or_none(offered_per_s),
        "utilisation": _utilisation(pool, replicas, facts.end_s, offered_per_s),
        "prefix_hit_rate": finite_or_none(
            divide(tally.cached_tokens, tally.scheduled_prompt_tokens)
        ),
        "preemptions": tally.preemptions,
        "queue": queues,
        "littles_law": _littles_law(pool, tally, facts.end_s),
        "slow_paths": dict(pool.slow_paths),
        "outside_fit": asdict(pool.outside_fit),
    }


def divide(numerator: float, denominator: float) -> float:
    """The quotient; NaN where the denominator is zero."""
    return numerator / denominator if denominator else nan


def _utilisation(
    pool: PoolFacts, replicas: Sequence[ReplicaRecord], end_s: float, offered_per_s: float
) -> dict[str, Any]:
    ready_s = sum(_until(r.stopped_s, end_s) - _until(r.ready_s, end_s) for r in replicas)
    budget_tokens = sum(r.steps * r.max_num_batched_tokens for r in replicas)
    capacity = pool.slo_capacity_per_s
    return {
        "offered_over_slo_capacity": finite_or_none(divide(offered_per_s, capacity or 0.0)),
        "token_budget_fraction": finite_or_none(
            divide(sum(r.scheduled_tokens for r in replicas), budget_tokens)
        ),
        "kv_fraction_mean": finite_or_none(
            divide(sum(r.kv_usage_integral_s for r in replicas), ready_s)
        ),
        "kv_fraction_max": max((r.kv_usage_max for r in replicas), default=None),
        "busy_fraction": finite_or_none(divide(sum(r.busy_s for r in replicas), ready_s)),
    }


def _until(time_s: float, end_s: float) -> float:
    return end_s if np.isnan(time_s) else time_s


def _littles_law(pool: PoolFacts, tally: PoolTally, end_s: float) -> dict[str, Any]:
    from_integral = divide(pool.requests_integral_s, end_s)
    arrivals_per_s = divide(tally.dispatched, end_s)
    mean_residence_s = divide(tally.residence_s, tally.dispatched)
    from_journeys = divide(tally.residence_s, end_s)
    larger = max(from_integral, from_journeys)
    difference = abs(from_integral - from_journeys)
    return {
        "l_from_integral": finite_or_none(from_integral),
        "l_from_journeys": finite_or_none(from_journeys),
        "lambda_per_s": finite_or_none(arrivals_per_s),
        "w_mean_s": finite_or_none(mean_residence_s),
        "relative_difference": finite_or_none(divide(difference, larger)),
    }


def queue_lengths(store: Store, facts: RunFacts) -> dict[str, dict[str, Any]]:
    """Requests running and waiting in each pool, from the samples in the measurement window."""
    lengths = {pool.name: _PoolSamples() for pool in facts.pools}
    for pools, t_s, running, waiting in _samples(store, facts):
        for name, samples in lengths.items():
            here = pools == name
            samples.add(t_s[here], running[here], waiting[here])
    return {name: samples.summary() for name, samples in lengths.items()}


def _samples(store: Store, facts: RunFacts) -> Iterator[tuple[Array, ...]]:
    columns = ("pool", "t_s", "running", "waiting")
    for part in store.parts("timeline", columns):
        arrays = [part.column(name).to_numpy(zero_copy_only=False) for name in columns]
        t_s = arrays[1]
        inside = (t_s >= facts.window_start_s) & (t_s <= facts.window_end_s)
        yield tuple(array[inside] for array in arrays)


class _PoolSamples:
    """Sums over a pool's replicas at each sample time; one time may lie in two parts."""

    def __init__(self) -> None:
        self._sums: dict[float, list[int]] = {}

    def add(self, t_s: Array, running: Array, waiting: Array) -> None:
        times_s, index = np.unique(t_s, return_inverse=True)
        running_sums = np.bincount(index, running, len(times_s)).tolist()
        waiting_sums = np.bincount(index, waiting, len(times_s)).tolist()
        for time_s, r, w in zip(times_s.tolist(), running_sums, waiting_sums, strict=True):
            sums = self._sums.setdefault(time_s, [0, 0])
            sums[0] += int(r)
            sums[1] += int(w)

    def summary(self) -> dict[str, Any]:
        running = [sums[0] for sums in self._sums.values()]
        waiting = [sums[1] for sums in self._sums.values()]
        return {
            "running_mean": finite_or_none(divide(sum(running), len(running))),
            "running_max": max(running, default=None),
            "waiting_mean": finite_or_none(divide(sum(waiting), len(waiting))),
            "waiting_max": max(waiting, default=None),
        }
