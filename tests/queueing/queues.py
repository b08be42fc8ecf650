"""A replica configured as a queue for which a formula exists, and the statistics to compare them.

Chance here is numpy's, drawn by the test: what is held against the formulas is the simulator and
not its generator of workloads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from invariants.fleets import write_profile
from scipy import stats

from fleetsim.calibration import StepCostParameters
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate
from fleetsim.traces import Trace, TraceMetadata

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SERVICE_S = 0.08
"""Mean service time of the chapter's example."""

MEAN_TOKENS = 1000
"""Mean length where service is proportional to it: so fine that whole tokens do not show."""


def poisson_arrivals(rng: np.random.Generator, rate_per_s: float, count: int) -> Floats:
    """Arrival times; the first is 0."""
    gaps = rng.exponential(1.0 / rate_per_s, count)
    arrivals: Floats = np.cumsum(gaps) - gaps[0]
    return arrivals


def run_queue(
    folder: Path,
    arrival_s: Floats,
    prompt_tokens: Ints,
    output_tokens: Ints,
    step_cost: StepCostParameters,
    servers: int,
    **engine: Any,
) -> pd.DataFrame:
    """The requests that one replica served, nothing before or behind it taking any time.

    Scheduling is synchronous: with the asynchronous one a place that falls free is seen one step
    late, which no textbook queue does.
    """
    count = len(arrival_s)
    Trace(
        arrival_s=arrival_s,
        prompt_tokens=prompt_tokens.astype(np.int32),
        output_tokens=output_tokens.astype(np.int32),
        source_row=np.arange(count),
        metadata=TraceMetadata(source_name="queue", rows_read=count, rows_kept=count),
    ).to_parquet(folder / "queue.parquet")
    write_profile(folder, step_cost=step_cost)
    options = {
        "max_num_seqs": servers,
        "max_num_batched_tokens": 65536,
        "max_model_len": 65536,
        "async_scheduling": False,
        **engine,
    }
    (folder / "queue.yaml").write_text(
        "name: queue\n"
        "workload: {trace: queue.parquet, max_tokens: output}\n"
        f"pools: {{p: {{profile: profile.json, replicas: 1, engine: {_flow(options)}}}}}\n"
        "results: {steps: none, sample_interval_s: 1h}\n"
    )
    result = simulate(load_scenario(folder / "queue.yaml"))
    requests = result.requests()
    assert (requests["outcome"] == "completed").all()
    assert result.summary["pools"]["p"]["littles_law"]["relative_difference"] < 1e-9
    return requests


def _flow(options: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {str(value).lower()}" for key, value in options.items()) + "}"


def run_prompts(folder: Path, arrival_s: Floats, prompt_tokens: Ints) -> pd.DataFrame:
    """One server whose service time is the prompt's length: SERVICE_S for MEAN_TOKENS."""
    cost = StepCostParameters(token_slopes_s=(SERVICE_S / MEAN_TOKENS,))
    return run_queue(folder, arrival_s, prompt_tokens, np.ones_like(prompt_tokens), cost, 1)


def lindley(arrival_s: Floats, service_s: Floats) -> Floats:
    """When each customer of a single first-come-first-served server leaves (Lindley, 1952).

    ``end = max(arrival, end before) + service``, unrolled so that numpy can do it at once.
    """
    work_s = np.cumsum(service_s)
    idle_s: Floats = np.maximum.accumulate(arrival_s - np.concatenate([[0.0], work_s[:-1]]))
    return work_s + idle_s


def assert_mean_is(expected: float, replications: list[float], power: float) -> None:
    """The replications' mean agrees with `expected`: it lies in their 99.9 % t interval.

    And the interval is narrow enough to say something: its half width at most `power` of it.
    """
    half = stats.t.ppf(0.9995, len(replications) - 1) * stats.sem(replications)
    mean = float(np.mean(replications))
    assert abs(mean - expected) <= half, f"{mean:.5g} +- {half:.2g}, not {expected:.5g}"
    assert half <= power * expected, f"+- {half / expected:.1%} says little"
