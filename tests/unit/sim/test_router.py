"""The router: a model is looked up, a replica chosen, and then the request let in or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from invariants.fleets import (
    check_conservation,
    run_both_ways,
    small_fleet,
    write_profile,
    write_trace,
)

from fleetsim.calibration import StepCostParameters
from fleetsim.sim.results.result import Result
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate
from fleetsim.traces import InputError

ENGINE = {"max_model_len": 512, "num_gpu_blocks_override": 201, "max_num_batched_tokens": 512,
          "max_num_seqs": 32}  # fmt: skip


def _run(folder: Path, rows: list[dict[str, Any]], **router: Any) -> Result:
    """Two pools: "small" (2 replicas, 10 ms a step) and "large" (1 replica, 50 ms, context 256)."""
    fast = write_profile(folder, "fast.json", step_cost=StepCostParameters(constant_s=0.01))
    slow = write_profile(folder, "slow.json", step_cost=StepCostParameters(constant_s=0.05))
    data = {
        "name": "two",
        "workload": {"trace": write_trace(folder, rows), "max_tokens": "output"},
        "router": router,
        "pools": {
            "small": {"profile": fast, "model": "llama-8b", "replicas": 2, "engine": ENGINE},
            "large": {
                "profile": slow,
                "model": "llama-70b",
                "replicas": 1,
                "engine": {**ENGINE, "max_model_len": 256},
            },
        },
    }
    (folder / "two.yaml").write_text(json.dumps(data))
    result = run_both_ways(load_scenario(folder / "two.yaml"))
    check_conservation(result)
    return result


def _row(model: str, at_s: float = 0.0, prompt: int = 20, output: int = 5) -> dict[str, Any]:
    return {"arrival_s": at_s, "prompt_tokens": prompt, "output_tokens": output, "model": model}


def test_a_request_goes_to_the_pool_of_its_model(tmp_path: Path) -> None:
    rows = [_row("llama-70b"), _row("llama-8b", 1.0), _row("llama-70b", 2.0)]
    requests = _run(tmp_path, rows).requests()
    assert requests["pool"].tolist() == ["large", "small", "large"]
    assert requests["e2e_s"].tolist() == pytest.approx([0.25, 0.05, 0.25])
    # replicas are numbered through the fleet
    assert requests["replica"].tolist()[0] == 2
    assert requests["replica"].tolist()[1] in (0, 1)


@pytest.mark.parametrize(("default", "pool"), [(None, "small"), ("large", "large")])
def test_one_that_names_no_model_goes_to_the_default_pool(
    tmp_path: Path, default: str | None, pool: str
) -> None:
    router = {"default_pool": default} if default else {}
    rows = [_row(""), _row("llama-8b", 1.0)]
    assert _run(tmp_path, rows, **router).requests()["pool"].tolist() == [pool, "small"]


def test_a_model_that_nobody_serves(tmp_path: Path) -> None:
    result = _run(tmp_path, [_row("gpt-5"), _row("llama-8b")])
    assert result.requests()["outcome"].tolist() == ["rejected", "completed"]
    assert result.summary["requests"]["reasons"] == {"rejected": {"unknown_model": 1}}


def test_each_pool_has_a_context_of_its_own(tmp_path: Path) -> None:
    rows = [_row("llama-8b", prompt=300), _row("llama-70b", prompt=300)]
    requests = _run(tmp_path, rows).requests()
    assert requests["reason"].tolist() == ["", "context_length"]


def test_numbers_are_kept_by_pool(tmp_path: Path) -> None:
    rows = [_row("llama-8b", 0.1 * i) for i in range(10)] + [
        _row("llama-70b", 2.0 + i) for i in range(3)
    ]
    summary = _run(tmp_path, rows).summary
    small, large = summary["pools"]["small"], summary["pools"]["large"]
    assert (small["dispatched"], large["dispatched"]) == (10, 3)
    assert (small["replicas"], large["replicas"]) == (2, 1)
    end_s = summary["run"]["end_s"]
    assert small["littles_law"]["l_from_integral"] == pytest.approx(10 * 0.05 / end_s)
    assert large["littles_law"]["l_from_integral"] == pytest.approx(3 * 0.25 / end_s)
    assert large["utilisation"]["busy_fraction"] == pytest.approx(3 * 0.25 / end_s)


SHY = '''
from fleetsim.policies import Decision


class Shy:
    """Nobody will do for short prompts; the last replica for the others."""

    needs_scraped = False
    needs_prefix = False

    def choose(self, request, pool, draws):
        if request.prompt_tokens < 50:
            return Decision(-1, "too short")
        return Decision(len(pool.replicas) - 1, "long enough", (1.5, 2.5))
'''


def test_a_policy_of_ones_own_may_refuse_and_is_logged(tmp_path: Path) -> None:
    (tmp_path / "shy.py").write_text(SHY)
    rows = [_row("llama-8b", prompt=20), _row("llama-8b", prompt=60)]
    result = _run(
        tmp_path,
        rows,
        routing={"policy": "shy.py:Shy"},
        admission={"policy": "predictive_ttft", "slo_ttft_s": 10.0},
        log_decisions=True,
    )
    requests = result.requests()
    assert requests["reason"].tolist() == ["too short", ""]
    assert requests["replica"].tolist() == [-1, 1]
    decision = result.decisions().iloc[-1]
    assert (decision["pool"], decision["replica"], decision["reason"]) == (
        "small",
        1,
        "long enough",
    )
    assert decision["scores"].tolist() == [1.5, 2.5]


def test_what_admission_refused_is_in_the_log_with_its_reason(tmp_path: Path) -> None:
    result = _run(
        tmp_path,
        [_row("llama-8b")],
        admission={"policy": "reject_all"},
        log_decisions=True,
    )
    assert result.requests()["outcome"].tolist() == ["rejected"]
    assert result.requests()["pool"].tolist() == [""]
    assert result.decisions()["reason"].tolist()[0].startswith("refused: ")


def test_a_trace_of_other_models_only_is_refused_before_the_run(tmp_path: Path) -> None:
    row = {"arrival_s": 0.0, "prompt_tokens": 8, "output_tokens": 2}
    rows = [{**row, "model": name} for name in ("a", "b", "c", "d")]
    with pytest.raises(InputError, match=r"asks for 'a', 'b', 'c' and 1 more, and no pool serves"):
        simulate(small_fleet(tmp_path, rows))
    result = simulate(small_fleet(tmp_path, rows, workload={"ignore_model": True}))
    assert result.summary["requests"]["completed"] == 4
