"""LoRA adapters in a whole run: from the trace's column to slots, prefixes and policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from invariants.fleets import check_conservation, run_both_ways, small_fleet

from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate
from fleetsim.traces import InputError


def _rows(adapters: list[str], **other: Any) -> list[dict[str, Any]]:
    return [
        {"arrival_s": 0.0, "prompt_tokens": 20, "output_tokens": 40, "adapter": a, **other}
        for a in adapters
    ]


def test_a_slot_is_waited_for(tmp_path: Path) -> None:
    rows = _rows(["x", "y", "x", ""])
    result = run_both_ways(small_fleet(tmp_path, rows, engine={"max_loras": 1}))
    check_conservation(result)
    requests = result.requests().set_index("request_id")
    waited_s = requests["scheduled_s"] - requests["queued_s"]
    assert waited_s[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    assert waited_s[1] > 0.25  # forty steps of x
    assert requests.loc[1, "scheduled_s"] <= requests.loc[0, "last_token_s"]


def test_a_slot_for_each_and_nobody_waits(tmp_path: Path) -> None:
    result = run_both_ways(small_fleet(tmp_path, _rows(["x", "y", "x"]), engine={"max_loras": 2}))
    requests = result.requests()
    assert (requests["scheduled_s"] == requests["queued_s"]).all()


def test_the_same_prompt_under_another_adapter_hits_nothing(tmp_path: Path) -> None:
    rows = [
        {
            "arrival_s": float(i),
            "prompt_tokens": 100,
            "output_tokens": 2,
            "adapter": adapter,
            "block_ids": [1, 2, 3],
            "block_tokens": 32,
        }
        for i, adapter in enumerate(["", "x", "y", "x", ""])
    ]
    result = run_both_ways(small_fleet(tmp_path, rows, engine={"max_loras": 2}))
    assert result.requests()["cached_tokens"].tolist() == [0, 0, 0, 96, 96]


def test_a_router_sees_the_adapter(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from fleetsim.policies import Decision, PolicyParams\n"
        "class ByAdapter:\n"
        "    '''Each adapter on a replica of its own.'''\n"
        "    class Params(PolicyParams): pass\n"
        "    needs_scraped = needs_prefix = False\n"
        "    def __init__(self, params): pass\n"
        "    def choose(self, request, pool, draws):\n"
        "        return Decision('xyz'.index(request.adapter), request.adapter)\n"
    )
    scenario = small_fleet(
        tmp_path,
        _rows(["x", "z", "y", "x"]),
        replicas=3,
        engine={"max_loras": 1},
        router={"routing": {"policy": "own.py:ByAdapter"}},
    )
    requests = run_both_ways(scenario).requests().sort_values("request_id")
    assert requests["replica"].tolist() == [0, 2, 1, 0]


def test_adapters_without_max_loras_are_refused(tmp_path: Path) -> None:
    scenario = small_fleet(tmp_path, _rows(["", "legal"]))
    with pytest.raises(InputError, match=r"pools\.p\.engine\.max_loras: must be .*'legal'.*; give"):
        simulate(scenario)


def test_only_pools_that_are_asked_for_adapters_need_slots(tmp_path: Path) -> None:
    rows = _rows(["", "x"])
    for row, model in zip(rows, ["small", "large"], strict=True):
        row["model"] = model
    small_fleet(tmp_path, rows)
    pool = "{{profile: profile.json, replicas: 1, model: {}, engine: {{{}}}}}"
    options = "max_model_len: 1024, num_gpu_blocks_override: 101"
    text = "workload: {trace: trace.csv}\npools:\n  a: " + pool.format("small", options) + "\n"
    path = tmp_path / "two.yaml"
    path.write_text(text + "  b: " + pool.format("large", options + ", max_loras: 1"))
    assert simulate(load_scenario(path)).summary["requests"]["completed"] == 2
    path.write_text(text + "  b: " + pool.format("large", options))
    with pytest.raises(InputError, match=r"pools\.b\.engine\.max_loras"):
        simulate(load_scenario(path))
