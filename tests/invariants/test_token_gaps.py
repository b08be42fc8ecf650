"""Gaps between tokens: as many as there are, and as long as they were.

They are kept step by step in a histogram and never by token, so they are held here against what
the journeys know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invariants.fleets import STEP_S, run_both_ways, small_fleet, write_profile

from fleetsim.calibration import StepCostParameters
from fleetsim.sim.results.result import Result


def _rows(outputs: list[int], gap_s: float, prompt: int = 60) -> list[dict[str, Any]]:
    return [
        {"arrival_s": i * gap_s, "prompt_tokens": prompt, "output_tokens": output}
        for i, output in enumerate(outputs)
    ]


def _gaps_of_journeys(result: Result) -> tuple[int, float]:
    """How many, and their sum: from each request's first token to its last."""
    requests = result.requests()
    assert (requests["outcome"] == "completed").all()
    count = int((requests["delivered_tokens"] - 1).sum())
    return count, float((requests["last_token_s"] - requests["first_token_s"]).sum())


OUTPUTS = [30, 1, 47, 5, 90, 2, 33, 64, 12, 70, 81, 9]


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("stop", ["eos", "length"])
@pytest.mark.parametrize(
    "engine",
    [
        {},
        {"num_gpu_blocks_override": 25, "max_model_len": 256},
        {"num_gpu_blocks_override": 25, "max_model_len": 256, "scheduling_policy": "priority"},
        {"long_prefill_token_threshold": 20, "max_num_batched_tokens": 40},
    ],
    ids=["room enough", "preemption", "preemption by priority", "small chunks"],
)
def test_every_gap_is_counted_once(
    tmp_path: Path, engine: dict[str, Any], stop: str, asynchronous: bool
) -> None:
    """A stop token that async scheduling could not foresee makes a step, but no token."""
    profile = write_profile(tmp_path, step_cost=StepCostParameters(constant_s=STEP_S))
    result = run_both_ways(
        small_fleet(
            tmp_path,
            _rows(OUTPUTS, STEP_S * 1.5),
            profile=profile,
            engine={"async_scheduling": asynchronous, **engine},
            workload={"max_tokens": "output" if stop == "length" else "context"},
        )
    )
    if "num_gpu_blocks_override" in engine:
        assert result.summary["pools"]["p"]["preemptions"] > 2
    count, sum_s = _gaps_of_journeys(result)
    itl = result.summary["latency"]["itl_s"]
    assert itl["count"] == count
    assert itl["mean"] * count == pytest.approx(sum_s, rel=1e-9)
    assert itl["p50"] == pytest.approx(STEP_S, rel=0.01)
    assert result.itl_histogram()["count"].sum() == count


def test_quantiles_are_those_of_the_gaps(tmp_path: Path) -> None:
    """Alone on a replica, each gap is a step of known length; bins are 1 % wide."""
    cost = StepCostParameters(constant_s=0.001, per_decode_kv_token_s=1e-5)
    profile = write_profile(tmp_path, step_cost=cost)
    result = run_both_ways(small_fleet(tmp_path, _rows([900], 1.0, prompt=100), profile=profile))
    gaps = 0.001 + 1e-5 * (100 + np.arange(899))
    itl = result.summary["latency"]["itl_s"]
    assert itl["count"] == 899
    assert itl["mean"] == pytest.approx(gaps.mean())
    for percentile in (50, 90, 99):
        expected = np.percentile(gaps, percentile)
        assert itl[f"p{percentile}"] == pytest.approx(expected, rel=0.011)


def test_gaps_count_over_the_whole_run_whatever_the_window(tmp_path: Path) -> None:
    result = run_both_ways(
        small_fleet(tmp_path, _rows([11] * 10, 2.0), measurement={"warm_up_s": 9.0})
    )
    assert result.summary["window"]["completed"] == 5
    assert result.summary["latency"]["itl_s"]["count"] == 100
