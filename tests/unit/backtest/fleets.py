"""A small fleet, its trace, and exports of it that our own simulator made."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.calibration import HostWork, StepCostParameters, analytic_profile
from fleetsim.sim.backtest.openmetrics import openmetrics_text
from fleetsim.sim.backtest.prometheus_dump import ITL, TTFT, Dump
from fleetsim.sim.backtest.simulated_dump import ScrapedFleet
from fleetsim.sim.scenario import Scenario, load_scenario

START_S = 1_764_000_000.0  # 2025-11-24T16:00:00Z
START = "2025-11-24T16:00:00Z"
INTERVAL_S = 5.0
MODEL = "org/model"
BOUNDS_S = {
    TTFT: np.array([0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, np.inf]),
    ITL: np.array([0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0, 2.5, 5.0, np.inf]),
}
REQUESTS = 2400
COST = StepCostParameters(
    constant_s=8e-3, token_slopes_s=(4e-5,), per_decode_kv_token_s=4e-8, per_mixed_kv_token_s=1e-8
)


def write_profile(path: Path, slower: float = 1.0) -> Path:
    """A profile with all of its times multiplied."""

    def scaled(value: Any) -> Any:
        return tuple(v * slower for v in value) if isinstance(value, tuple) else value * slower

    cost = replace(
        COST, **{f.name: scaled(getattr(COST, f.name)) for f in fields(COST) if f.name[-2:] == "_s"}
    )
    host = HostWork(residue_s=1e-3 * slower, residue_per_seq_s=2e-5 * slower, fitted_seqs=64)
    profile = analytic_profile(cost, host=host, max_context_tokens=8192, api_latency_s=0.005)
    path.write_text(profile.to_json(), encoding="utf-8")
    return path


def write_trace(path: Path, requests: int = REQUESTS, rate: float = 4.0, seed: int = 3) -> Path:
    """Arrivals and lengths from a seed; a third of the prompts begin alike."""
    rng = np.random.default_rng(seed)
    # the rate swings, as days do
    gaps = rng.exponential(1.0, requests) / (rate * (1.0 + 0.6 * np.sin(np.arange(requests) / 90)))
    arrivals = np.cumsum(gaps)
    lines = ["arrival_s,prompt_tokens,output_tokens,block_ids,block_tokens"]
    for i in range(requests):
        prompt, output = int(rng.integers(200, 900)), int(rng.integers(20, 160))
        shared = 8 if rng.random() < 0.33 else 0
        blocks = -(-prompt // 16)
        own = 1_000_000 + 100 * i
        ids = [*range(1, shared + 1), *range(own, own + blocks - shared)]
        chain = " ".join(map(str, ids))
        lines.append(f"{arrivals[i] - arrivals[0]:.6f},{prompt},{output},{chain},16")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_scenario(folder: Path) -> Path:
    """fleet.yaml with its trace and profile."""
    write_trace(folder / "trace.csv")
    write_profile(folder / "profile.json")
    path = folder / "fleet.yaml"
    path.write_text(
        "workload: {trace: trace.csv}\n"
        "router: {routing: {policy: round_robin}}\n"
        "pools:\n"
        "  chat:\n"
        "    profile: profile.json\n"
        f"    model: {MODEL}\n"
        "    replicas: 3\n"
        "    engine:\n"
        "      {max_num_seqs: 24, max_num_batched_tokens: 1024, num_gpu_blocks_override: 3000}\n",
        encoding="utf-8",
    )
    return path


def scenario(folder: Path, *changes: str) -> Scenario:
    return load_scenario(folder / "fleet.yaml", changes)


def export(folder: Path, *changes: str, interval_s: float = INTERVAL_S) -> Dump:
    """What a Prometheus that scrapes the simulated fleet would hold."""
    fleet = ScrapedFleet(scenario(folder, *changes), interval_s)
    fleet.run()
    return fleet.dump(["chat"], MODEL, START_S, BOUNDS_S)


def write_openmetrics(path: Path, dump: Dump) -> Path:
    path.write_text("".join(openmetrics_text(dump)), encoding="utf-8")
    return path


def answer(dump: Dump, *metrics: str) -> dict[str, Any]:
    """What query_range answers to a query of these metrics, of all without any."""
    result = [
        {
            "metric": {"__name__": metric, **dict(labels)},
            "values": [
                [round(t, 3), repr(float(v)).replace("nan", "NaN")]
                for t, v in zip(one.times_s, one.values, strict=True)
            ],
        }
        for metric, by_labels in dump.series.items()
        if not metrics or metric in metrics
        for labels, one in by_labels.items()
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def write_answer(path: Path, dump: Dump) -> Path:
    path.write_text(json.dumps(answer(dump)), encoding="utf-8")
    return path
