"""The summary: every number that a run reports, from its tables and the simulator's facts."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

import numpy as np

from fleetsim.sim.request import COMPLETED, OUTCOMES
from fleetsim.sim.results.facts import Provenance, RunFacts
from fleetsim.sim.results.histogram import LogHistogram
from fleetsim.sim.results.measures import MEASURES, Floats
from fleetsim.sim.results.pool_summary import divide, pool_summary, queue_lengths
from fleetsim.sim.results.slo import (
    Mask,
    PercentileVerdict,
    Slo,
    finite_or_none,
    judge,
    met,
    per_request_bounds,
)
from fleetsim.sim.results.store import Store
from fleetsim.sim.results.tally import REQUEST_COLUMNS, Tally

PERCENTILES = (50, 90, 99)


def summarise(store: Store, facts: RunFacts, slo: Slo) -> dict[str, Any]:
    """Every number of the run by name, as JSON can hold it: None where a number is undefined.

    Args:
        store: holds all rows of the run's requests and timeline.
        facts: what the simulator counted beside them.
        slo: what the run is judged by.

    Raises:
        ConservationError: when a request was lost, made up or miscounted.
    """
    tally = Tally(facts)
    for part in store.parts("requests", REQUEST_COLUMNS):
        tally.add(part)
    tally.check_conservation()
    measured, completed = tally.window_measures(), tally.window_completed()
    queues = queue_lengths(store, facts)
    window_s = facts.window_end_s - facts.window_start_s
    return {
        "provenance": _provenance(facts.provenance),
        "window": {
            "start_s": facts.window_start_s,
            "end_s": facts.window_end_s,
            "offered": len(completed),
            "completed": int(np.count_nonzero(completed)),
        },
        "run": {"end_s": facts.end_s},
        "requests": _outcomes(tally, facts),
        "tenants": _tenants(tally),
        "rates": _rates(tally, len(completed), window_s, facts.end_s),
        "latency": _latency(measured, completed, facts),
        "phases_mean_s": {
            name: finite_or_none(divide(total_s, int(np.count_nonzero(completed))))
            for name, total_s in tally.phase_sums_s.items()
        },
        "slo": _slo(slo, tally, measured, completed, window_s),
        "pools": {
            pool.name: pool_summary(pool, tally.pools[pool.name], facts, queues[pool.name])
            for pool in facts.pools
        },
        "cost": _cost(facts, tally),
    }


def _provenance(provenance: Provenance) -> dict[str, Any]:
    return {
        "scenario": provenance.scenario,
        "trace": provenance.trace,
        "trace_synthetic": provenance.trace_synthetic,
        "transforms": list(provenance.transforms),
        "seed": provenance.seed,
        "versions": dict(provenance.versions),
        "hashes": dict(provenance.hashes),
        "notes": list(provenance.notes),
    }


def _outcomes(tally: Tally, facts: RunFacts) -> dict[str, Any]:
    counts = dict.fromkeys(OUTCOMES, 0)
    for (_, outcome), count in tally.outcomes.items():
        counts[outcome] += count
    reasons: dict[str, dict[str, int]] = {}
    for (outcome, reason), count in sorted(tally.reasons.items()):
        if outcome != COMPLETED:
            reasons.setdefault(outcome, {})[reason] = count
    outcomes = {"arrived": sum(counts.values()), **counts, "reasons": reasons}
    if facts.turns_not_issued is not None:
        outcomes["turns_not_issued"] = dict(sorted(facts.turns_not_issued.items()))
    return outcomes


def _tenants(tally: Tally) -> dict[str, dict[str, int]]:
    tenants: dict[str, dict[str, int]] = {}
    for (tenant, outcome), count in sorted(tally.outcomes.items()):
        counts = tenants.setdefault(tenant, {"arrived": 0, **dict.fromkeys(OUTCOMES, 0)})
        counts[outcome] += count
        counts["arrived"] += count
    return tenants


def _rates(tally: Tally, offered: int, window_s: float, end_s: float) -> dict[str, Any]:
    ended, whole = tally.ended_in_window, tally.completed
    rates = {
        "offered_per_s": divide(offered, window_s),
        "completed_per_s": divide(ended.requests, window_s),
        "prompt_tokens_per_s": divide(ended.prompt_tokens, window_s),
        "output_tokens_per_s": divide(ended.output_tokens, window_s),
        "run_completed_per_s": divide(whole.requests, end_s),
        "run_prompt_tokens_per_s": divide(whole.prompt_tokens, end_s),
        "run_output_tokens_per_s": divide(whole.output_tokens, end_s),
    }
    return {name: finite_or_none(rate) for name, rate in rates.items()}


def _latency(
    measured: Mapping[str, Floats], completed: Mask, facts: RunFacts
) -> dict[str, dict[str, Any]]:
    latency: dict[str, dict[str, Any]] = {}
    for name in MEASURES:
        values = measured[name][completed]
        latency[name] = _statistics(values[~np.isnan(values)])
    itl = LogHistogram()
    for pool in facts.pools:
        itl.merge(pool.itl)
    latency["itl_s"] = {
        "count": itl.count,
        "mean": finite_or_none(itl.mean_s),
        **{f"p{p}": finite_or_none(itl.quantile(p / 100)) for p in PERCENTILES},
    }
    return latency


def _statistics(values: Floats) -> dict[str, Any]:
    points = np.percentile(values, PERCENTILES) if len(values) else [nan] * len(PERCENTILES)
    return {
        "count": len(values),
        "mean": finite_or_none(float(values.mean()) if len(values) else nan),
        **{f"p{p}": finite_or_none(v) for p, v in zip(PERCENTILES, points, strict=True)},
    }


def _slo(
    slo: Slo, tally: Tally, measured: Mapping[str, Floats], completed: Mask, window_s: float
) -> dict[str, Any]:
    prompts = tally.window_prompts()
    verdicts = [judge(target, completed, measured, prompts) for target in slo.percentiles]
    passes = [verdict.passed for verdict in verdicts]
    bounds = per_request_bounds(slo)
    # Without a bound there is no share that met it, and no goodput.
    good = int(np.count_nonzero(met(bounds, completed, measured))) if bounds else None
    return {
        "passed": False if False in passes else (None if None in passes or not passes else True),
        "percentiles": [_verdict(verdict) for verdict in verdicts],
        "per_request": bounds,
        "good": good,
        "attainment": None if good is None else finite_or_none(divide(good, len(completed))),
        "goodput_per_s": None if good is None else finite_or_none(divide(good, window_s)),
    }


def _verdict(verdict: PercentileVerdict) -> dict[str, Any]:
    target = verdict.target
    return {
        "metric": target.metric,
        "percentile": target.percentile,
        "at_most_s": target.at_most_s,
        "max_prompt_tokens": target.max_prompt_tokens,
        "observed_s": finite_or_none(verdict.observed_s),
        "completed_s": finite_or_none(verdict.completed_s),
        "requests": verdict.requests,
        "misses": verdict.misses,
        "passed": verdict.passed,
    }


def _cost(facts: RunFacts, tally: Tally) -> dict[str, Any]:
    gpu_hours, usd = 0.0, 0.0
    for replica in facts.replicas:
        released_s = facts.end_s if np.isnan(replica.stopped_s) else replica.stopped_s
        hours = replica.gpus * (released_s - replica.requested_s) / 3600.0
        gpu_hours += hours
        usd += hours * replica.usd_per_gpu_hour
    output_tokens = tally.completed.output_tokens
    total_tokens = output_tokens + tally.completed.prompt_tokens
    return {
        "gpu_hours": gpu_hours,
        "usd": finite_or_none(usd),
        "usd_per_million_output_tokens": finite_or_none(divide(usd * 1e6, output_tokens)),
        "usd_per_million_total_tokens": finite_or_none(divide(usd * 1e6, total_tokens)),
    }
