"""Small fleets for tests: scenarios from keywords, on profiles whose step cost is stated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.calibration import StepCostParameters, analytic_profile
from fleetsim.sim.results.result import Result
from fleetsim.sim.scenario import Scenario, load_scenario
from fleetsim.sim.simulate import simulate

AZURE_CONV = "traces/azure_2023/AzureLLMInferenceTrace_conv.csv"
MOONCAKE = "traces/mooncake_fast25/conversation_trace.jsonl.gz"

STEP_S = 2.0**-7
"""A step's constant cost in `write_profile`; arrivals on this grid meet the ends of steps."""

COUNTS = ("completed", "rejected", "failed", "cancelled", "unfinished")


def write_profile(folder: Path, name: str = "profile.json", **stated: Any) -> str:
    """A profile file in `folder`; its name, as a scenario there would give it.

    Args:
        stated: arguments of `analytic_profile`, and `step_cost`; by default steps of 2**-7 s, and
            2**-17 s for each token.
    """
    cost = stated.pop(
        "step_cost", StepCostParameters(constant_s=STEP_S, token_slopes_s=(2.0**-17,))
    )
    profile = analytic_profile(cost, name=Path(name).stem, **stated)
    (folder / name).write_text(profile.to_json())
    return name


def write_trace(folder: Path, rows: Iterable[Mapping[str, Any]], name: str = "trace.csv") -> str:
    """A trace in the plain format; every row has the same keys."""
    rows = list(rows)
    lines = [",".join(rows[0])]
    lines += [",".join(_cell(value) for value in row.values()) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return name


def _cell(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return repr(value) if isinstance(value, float) else str(value)


def small_fleet(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    replicas: int = 1,
    engine: Mapping[str, Any] | None = None,
    profile: str | None = None,
    seed: int = 0,
    workload: Mapping[str, Any] | None = None,
    **sections: Any,
) -> Scenario:
    """A scenario of one pool "p" for the given requests.

    Args:
        rows: of the trace: arrival_s, prompt_tokens, output_tokens, ...
        engine: options over a small default: 100 usable blocks, context 1,024.
        profile: a profile file in `folder`, or a shipped profile's name.
        workload: its other keys.
        sections: other sections of the scenario.
    """
    options = {
        "max_model_len": 1024,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 512,
        "num_gpu_blocks_override": 101,
        **(engine or {}),
    }
    data = {
        "name": "small",
        "seed": seed,
        "workload": {"trace": write_trace(folder, rows), **(workload or {})},
        "pools": {
            "p": {
                "profile": profile or write_profile(folder),
                "replicas": replicas,
                "engine": options,
            }
        },
        **sections,
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(data))  # JSON is YAML
    return load_scenario(path)


def run_both_ways(scenario: Scenario) -> Result:
    """The result, which with and without leaps is the same to the last bit."""
    result = simulate(scenario)
    stepwise = simulate(scenario, leaps=False)
    assert result.content_hash() == stepwise.content_hash()
    assert json.dumps(result.summary) == json.dumps(stepwise.summary)
    return result


def check_conservation(result: Result) -> None:
    """Nothing is lost: requests, tokens, time. Holds for every run."""
    summary = result.summary
    requests = result.requests()
    for counts in (summary["requests"], *summary["tenants"].values()):
        assert counts["arrived"] == sum(counts[outcome] for outcome in COUNTS)
    assert summary["requests"]["arrived"] == len(requests)
    assert requests["request_id"].is_unique
    for tenant, counts in summary["tenants"].items():
        own = requests[requests["tenant"] == tenant]
        assert counts["arrived"] == len(own)
        for outcome in COUNTS:
            assert counts[outcome] == (own["outcome"] == outcome).sum()

    done = requests[requests["outcome"] == "completed"]
    assert (done["delivered_tokens"] == done["output_tokens"]).all()
    assert (requests["delivered_tokens"] <= requests["output_tokens"]).all()
    assert (requests["cached_tokens"] < requests["prompt_tokens"]).all()
    assert set(done["finish_reason"]) <= {"stop", "length"}
    assert not requests[requests["outcome"] != "completed"]["finish_reason"].any()
    check_times(requests)
    for name, pool in summary["pools"].items():
        law = pool["littles_law"]
        if law["l_from_integral"]:
            assert law["relative_difference"] < 1e-9, name
        dispatched = requests[requests["pool"] == name]
        assert pool["dispatched"] == dispatched["dispatched_s"].notna().sum()
        assert pool["preemptions"] == dispatched["preemptions"].sum()
    check_replicas(result)


def check_times(requests: Any) -> None:
    """Each journey's times are in order, and its phases are whole and sum to the whole."""
    order = [
        "client_sent_s",
        "arrived_s",
        "admitted_s",
        "dispatched_s",
        "queued_s",
        "scheduled_s",
        "first_token_s",
        "last_token_s",
        "ended_s",
    ]
    times = requests[order].to_numpy()
    # Of a request that did not complete some are unknown, and it may have ended on its way to the
    # engine's queue, when it knew already when it would have joined.
    for row in times[:, :-1]:
        assert (np.diff(row[~np.isnan(row)]) >= 0).all(), row
    assert not (times[:, -1] < times[:, 0]).any()
    done = requests["outcome"] == "completed"
    assert not np.isnan(times[done]).any()
    assert (np.diff(times[done], axis=1) >= 0).all()

    stalls = requests[["prefill_stall_s", "decode_stall_s"]]
    assert (stalls >= 0).all(axis=None)
    assert not stalls[requests["preemptions"] == 0].any(axis=None)
    rows = requests[done]
    phases = {
        "network_in": rows["arrived_s"] - rows["client_sent_s"],
        "gateway": rows["dispatched_s"] - rows["arrived_s"],
        "api": rows["queued_s"] - rows["dispatched_s"],
        "queue": rows["scheduled_s"] - rows["queued_s"],
        "prefill": rows["first_token_s"] - rows["scheduled_s"] - rows["prefill_stall_s"],
        "decode": rows["last_token_s"] - rows["first_token_s"] - rows["decode_stall_s"],
        "stall": rows["prefill_stall_s"] + rows["decode_stall_s"],
        "network_out": rows["ended_s"] - rows["last_token_s"],
    }
    for name, seconds in phases.items():
        assert (seconds >= -1e-9).all(), (name, seconds.min())
    whole = rows["ended_s"] - rows["client_sent_s"]
    assert np.allclose(sum(phases.values()), whole, rtol=0, atol=1e-9)
    assert np.allclose(rows["e2e_s"], whole, rtol=0, atol=1e-9)


def check_replicas(result: Result) -> None:
    """Time and blocks of the replicas stay within what there is."""
    end_s = result.summary["run"]["end_s"]
    replicas = result.replicas()
    assert (replicas["busy_s"] <= end_s * (1 + 1e-12)).all()
    assert (replicas["kv_usage_max"] <= 1).all()
    assert (replicas["kv_usage_integral_s"] <= end_s * (1 + 1e-12)).all()
    budget_tokens = replicas["steps"] * replicas["max_num_batched_tokens"]
    assert (replicas["scheduled_tokens"] <= budget_tokens).all()
    gpu_s = (replicas["gpus"] * (end_s - replicas["requested_s"])).sum()
    assert np.isclose(result.summary["cost"]["gpu_hours"] * 3600, gpu_s, rtol=1e-12)
    timeline = result.timeline()
    assert timeline["kv_usage"].between(0, 1).all()
    assert (timeline[["running", "waiting"]] >= 0).all(axis=None)
    seqs = replicas.set_index("replica")["max_num_seqs"]
    assert (timeline["running"].to_numpy() <= seqs[timeline["replica"]].to_numpy()).all()
    assert timeline["t_s"].is_monotonic_increasing
