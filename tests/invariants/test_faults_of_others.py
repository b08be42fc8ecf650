"""Faults that users of other serving simulators met. Each must be impossible here.

One test for each, named after the fault; those of routers are in `test_faults_of_routers.py`.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from invariants.fleets import (
    STEP_S,
    check_conservation,
    check_times,
    run_both_ways,
    small_fleet,
    write_profile,
    write_trace,
)
from rich.console import Console

from fleetsim.calibration import StepCostParameters, load_profile
from fleetsim.sim.report.table import summary_table
from fleetsim.sim.results.result import Result
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate
from fleetsim.traces import InputError

EVEN_STEPS = StepCostParameters(constant_s=STEP_S)


def _row(arrival_s: float, prompt: int, output: int, **other: Any) -> dict[str, Any]:
    return {
        "arrival_s": arrival_s,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "tenant": "t",
        **other,
    }


def _run(folder: Path, rows: list[dict[str, Any]], **keywords: Any) -> Result:
    result = run_both_ways(small_fleet(folder, rows, **keywords))
    check_conservation(result)
    return result


# -- reading what was asked ----------------------------------------------------------------------


def test_no_rows_read_and_no_error(tmp_path: Path) -> None:
    rows = [_row(i * 0.1, 50, 4) for i in range(30)]
    result = _run(tmp_path, rows)
    assert result.summary["requests"]["arrived"] == 30
    assert result.requests()["source_row"].tolist() == list(range(30))


def test_a_column_named_otherwise_turned_arrivals_into_row_numbers(tmp_path: Path) -> None:
    write_trace(tmp_path, [{"time": 3.5, "ContextTokens": 5, "GeneratedTokens": 2}], "odd.csv")
    scenario = load_scenario(None, trace=str(tmp_path / "odd.csv"))
    with pytest.raises(InputError, match=r"odd\.csv"):
        simulate(scenario)


def test_prompt_above_the_limit_made_prefill_negative(tmp_path: Path) -> None:
    rows = [_row(0.0, 300, 5), _row(0.1, 100, 5), _row(0.2, 99, 50), _row(0.3, 60, 90)]
    engine = {"max_model_len": 100}
    result = _run(tmp_path, rows, engine=engine)
    requests = result.requests()
    assert requests["outcome"].tolist() == ["rejected", "rejected", "completed", "completed"]
    assert result.summary["requests"]["reasons"] == {"rejected": {"context_length": 2}}
    assert requests["delivered_tokens"].tolist() == [0, 0, 1, 40]
    assert requests["finish_reason"].tolist() == ["", "", "length", "length"]
    assert any("2 outputs are shorter" in note for note in result.summary["provenance"]["notes"])

    cut = _run(tmp_path, rows, engine=engine, workload={"over_length": "truncate"})
    assert cut.requests()["prompt_tokens"].tolist() == [99, 99, 99, 60]
    assert cut.requests()["delivered_tokens"].tolist() == [1, 1, 1, 40]
    notes = cut.summary["provenance"]["notes"]
    assert any("2 prompts were cut" in note for note in notes)
    assert any("4 outputs are shorter" in note for note in notes)


def test_first_arrival_at_zero_found_no_instances(tmp_path: Path) -> None:
    result = _run(tmp_path, [_row(0.0, 10, 2)], replicas=2)
    assert result.requests()["dispatched_s"].tolist() == [0.0]
    assert result.scaling()["t_s"].tolist() == [0.0, 0.0]


# -- memory --------------------------------------------------------------------------------------


def test_a_request_larger_than_the_kv_pool_looped_for_ever(tmp_path: Path) -> None:
    engine = {"max_model_len": 200, "num_gpu_blocks_override": 13}
    with pytest.raises(InputError, match=r"13 KV blocks.*only 12 fit"):
        small_fleet(tmp_path, [_row(0.0, 150, 50)], engine=engine)
    # the largest that is let in needs all there is, and gets through
    engine["num_gpu_blocks_override"] = 14
    result = _run(tmp_path, [_row(0.0, 150, 50)] * 5, engine=engine)
    assert result.summary["requests"]["completed"] == 5


@pytest.mark.parametrize("reserve", [True, False])
def test_turns_that_grow_preempted_each_other_for_ever(tmp_path: Path, reserve: bool) -> None:
    """Eight conversations, each turn longer than the last, in a pool that holds one and a half."""
    rows = []
    for turn in range(6):
        for session in range(8):
            said = 60 * turn + 40
            chain = [session * 100 + i for i in range(said // 20)]
            rows.append(_row(turn * 4 * STEP_S, said, 30, block_ids=chain, block_tokens=20))
    result = _run(
        tmp_path,
        rows,
        engine={
            "max_model_len": 400,
            "num_gpu_blocks_override": 38,
            "scheduler_reserve_full_isl": reserve,
        },
    )
    assert result.summary["requests"]["completed"] == 48
    assert result.summary["pools"]["p"]["preemptions"] > 8


@pytest.mark.parametrize("reserve", [True, False])
def test_two_prompts_of_120k_tokens_preempted_each_other_for_ever(
    tmp_path: Path, reserve: bool
) -> None:
    """The pool holds one of them and a bit. Only if no more than the next chunk is reserved does
    the second begin at all, and then it gives way, as in vLLM; in the end both are served.
    """
    result = _run(
        tmp_path,
        [_row(0.0, 120_000, 40), _row(0.001, 120_000, 40)],
        engine={
            "max_model_len": 131_072,
            "max_num_batched_tokens": 8192,
            "num_gpu_blocks_override": 9001,
            "scheduler_reserve_full_isl": reserve,
        },
    )
    assert result.summary["requests"]["completed"] == 2
    preemptions = result.summary["pools"]["p"]["preemptions"]
    assert preemptions == 0 if reserve else preemptions > 0


def test_weights_did_not_fit_and_it_ran_on_with_a_million_blocks() -> None:
    with pytest.raises(InputError, match=r"does not fit: weights take 16\.1 GB"):
        load_scenario(None, ["pools.chat.engine.gpu_memory_utilization=0.15"])


@pytest.mark.parametrize(
    ("option", "factor"),
    [
        ("block_size=32", 0.5),
        ("gpu_memory_utilization=0.6", 0.54),
        ("kv_cache_dtype=fp8", 2.0),
        ("max_num_batched_tokens=65536", 0.91),
        ("num_gpu_blocks_override=9000", 0.316),
    ],
)
def test_a_flag_that_sets_the_capacity_was_ignored(option: str, factor: float) -> None:
    def blocks(*overrides: str) -> int:
        result = simulate(load_scenario(None, ["workload.head=5", *overrides]))
        return int(result.replicas()["num_gpu_blocks"][0])

    assert blocks(f"pools.chat.engine.{option}") / blocks() == pytest.approx(factor, rel=0.02)


def test_kv_capacity_guessed(tmp_path: Path) -> None:
    """It comes from the profile, is in the result, and decides who waits."""
    rows = [_row(0.0, 150, 100) for _ in range(12)]
    waits = {}
    for blocks in (34, 66, 1001):
        result = _run(
            tmp_path, rows, engine={"num_gpu_blocks_override": blocks, "max_model_len": 300}
        )
        assert result.replicas()["num_gpu_blocks"].tolist() == [blocks]
        waits[blocks] = result.summary["latency"]["queue_s"]["mean"]
    assert waits[34] > 1.5 * waits[66] > 3 * waits[1001]


@pytest.mark.parametrize("name", ["llama-3.1-8b-bf16-tp1-h100", "llama-3.1-70b-bf16-tp4-h100"])
def test_bytes_multiplied_twice_and_tensor_parallelism_ignored(name: str) -> None:
    profile = load_profile(name)
    layers, heads, dim = {"8b": (32, 8, 128), "70": (80, 8, 128)}[name[10:12]]
    assert profile.kv_bytes_per_token() == 2 * layers * heads * dim * 2
    for tp in (1, 2, 4, 8):
        assert profile.kv_bytes_per_token_per_gpu(tp) * tp == profile.kv_bytes_per_token()


# -- what users felt -----------------------------------------------------------------------------


def test_p99_of_ten_values_was_the_ninth(tmp_path: Path) -> None:
    """Ten requests, each alone on the replica: nine take up to 9 steps, the tenth takes 900."""
    outputs = [*range(1, 10), 900]
    rows = [_row(i * 2.0, 10, n) for i, n in enumerate(outputs)]
    profile = write_profile(tmp_path, step_cost=EVEN_STEPS)
    result = _run(
        tmp_path,
        rows,
        profile=profile,
        slo={"percentiles": [{"metric": "e2e_s", "percentile": 99, "at_most_s": 6.4}]},
    )
    e2e = result.summary["latency"]["e2e_s"]
    values = np.array(outputs) * STEP_S
    assert e2e["p99"] == pytest.approx(np.percentile(values, 99))
    assert e2e["p99"] > 0.9 * 900 * STEP_S
    assert e2e["p50"] == pytest.approx(5.5 * STEP_S)
    verdict = result.summary["slo"]["percentiles"][0]
    assert verdict["observed_s"] == pytest.approx(e2e["p99"])
    assert verdict["passed"] is False


def test_drops_vanished_from_the_slo_share(tmp_path: Path) -> None:
    limit = {"policy": "requests_per_minute", "requests_per_minute": 1, "burst_requests": 3}
    result = _run(
        tmp_path,
        [_row(i * 0.1, 10, 2) for i in range(12)],
        gateway={"tenants": {"*": {"limits": [limit]}}},
        slo={
            "per_request": {"e2e_s": 1.0},
            "percentiles": [{"metric": "e2e_s", "percentile": 50, "at_most_s": 1.0}],
        },
    )
    slo = result.summary["slo"]
    assert result.summary["window"]["offered"] == 12
    assert slo["good"] == 3
    assert slo["attainment"] == 0.25
    assert slo["percentiles"][0]["misses"] == 9
    assert slo["passed"] is False


def test_percentiles_of_nothing_were_printed_as_zero(tmp_path: Path) -> None:
    result = _run(
        tmp_path,
        [_row(0.0, 10, 2), _row(1.0, 10, 1)],
        router={"admission": {"policy": "reject_all"}},
        slo={"percentiles": [{"metric": "tpot_s", "percentile": 90, "at_most_s": 1.0}]},
    )
    for metric, statistics in result.summary["latency"].items():
        assert statistics.pop("count") == 0, metric
        assert set(statistics.values()) == {None}, metric
    assert result.summary["cost"]["usd_per_million_output_tokens"] is None
    screen = Console(file=io.StringIO(), width=100)
    screen.print(summary_table(result))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    for line in text.splitlines():
        if line.startswith(("client TTFT", "TPOT", "end to end")):
            assert line.split()[-4:] == ["–"] * 4, line  # noqa: RUF001


def test_ttft_left_out_the_queue(tmp_path: Path) -> None:
    """One at a time: the second waits for the first's ten steps."""
    profile = write_profile(tmp_path, step_cost=EVEN_STEPS)
    result = _run(
        tmp_path,
        [_row(0.0, 10, 10), _row(0.0, 10, 10)],
        profile=profile,
        engine={"max_num_seqs": 1, "async_scheduling": False},
    )
    requests = result.requests()
    assert requests["engine_ttft_s"].tolist() == [STEP_S, 11 * STEP_S]
    assert requests["client_ttft_s"].tolist() == [STEP_S, 11 * STEP_S]
    assert requests["queue_s"].tolist() == [0.0, 10 * STEP_S]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_ttft_and_end_to_end_wrong_after_a_preemption(tmp_path: Path, asynchronous: bool) -> None:
    profile = write_profile(tmp_path, step_cost=EVEN_STEPS)
    result = _run(
        tmp_path,
        [_row(i * STEP_S / 2, 60, 70) for i in range(10)],
        profile=profile,
        engine={
            "max_model_len": 256,
            "num_gpu_blocks_override": 25,
            "async_scheduling": asynchronous,
        },
    )
    requests = result.requests()
    check_times(requests)
    preempted = requests[requests["preemptions"] > 0]
    assert len(preempted) > 2
    # every token but the first takes a step of its own, and what is no step is a stall
    steps_s = requests["last_token_s"] - requests["first_token_s"] - requests["decode_stall_s"]
    again_s = requests["preemptions"] * STEP_S
    once = requests["prefill_stall_s"] == 0
    own_s = 69 * STEP_S
    assert np.allclose(steps_s[once & (requests["preemptions"] == 0)], own_s, rtol=0, atol=1e-9)
    assert (steps_s >= own_s - again_s - 1e-9).all()
    assert (steps_s <= own_s + again_s + 1e-9).all()
    assert (preempted["prefill_stall_s"] + preempted["decode_stall_s"] > 0).all()


def test_hits_were_counted_once_per_chunk_and_per_retry(tmp_path: Path) -> None:
    """A prompt of 40 blocks prefilled in chunks of 4, 36 of its blocks cached; then a twin."""
    chain = list(range(9))
    rows = [
        _row(0.0, 576, 2, block_ids=chain, block_tokens=64),
        _row(1.0, 640, 2, block_ids=[*chain, 90], block_tokens=64),
        _row(2.0, 640, 2, block_ids=[*chain, 90], block_tokens=64),
    ]
    result = _run(
        tmp_path, rows, engine={"max_num_batched_tokens": 64, "long_prefill_token_threshold": 20}
    )
    requests = result.requests()
    assert requests["cached_tokens"].tolist() == [0, 576, 624]
    rate = result.summary["pools"]["p"]["prefix_hit_rate"]
    assert rate == pytest.approx((576 + 624) / (576 + 640 + 640))


def test_hits_of_a_recomputation_are_not_hits_of_the_request(tmp_path: Path) -> None:
    rows = [_row(i * STEP_S / 2, 60, 70) for i in range(10)]
    result = _run(tmp_path, rows, engine={"max_model_len": 256, "num_gpu_blocks_override": 25})
    assert result.summary["pools"]["p"]["preemptions"] > 2
    assert not result.requests()["cached_tokens"].any()
    assert result.summary["pools"]["p"]["prefix_hit_rate"] == 0.0


# -- what it cost, and what it was ---------------------------------------------------------------


def test_gpus_that_never_served_were_not_counted(tmp_path: Path) -> None:
    result = _run(
        tmp_path,
        [_row(i * 1.0, 10, 20) for i in range(10)],
        replicas=4,
        router={"routing": {"policy": "always_first"}},
    )
    replicas, end_s = result.replicas(), result.summary["run"]["end_s"]
    assert (replicas["busy_s"] > 0).tolist() == [True, False, False, False]
    assert result.summary["cost"]["gpu_hours"] == pytest.approx(4 * end_s / 3600)
    busy = result.summary["pools"]["p"]["utilisation"]["busy_fraction"]
    assert busy == pytest.approx(replicas["busy_s"].sum() / (4 * end_s))


def test_the_engines_version_was_not_stated() -> None:
    result = simulate(load_scenario(None, ["workload.head=20"]))
    pool = result.summary["pools"]["chat"]
    profile = load_profile(pool["profile"])
    assert profile.provenance.scheduler in pool["engine"]
    assert "vLLM 0.3" in pool["engine"]
    assert profile.provenance.kernel_tables in pool["engine"]
    screen = Console(file=io.StringIO(), width=120)
    screen.print(summary_table(result))
    assert profile.provenance.scheduler in screen.file.getvalue()  # type: ignore[attr-defined]


def test_same_run_different_digits(tmp_path: Path) -> None:
    rows = [_row(i * 0.01, 100, 30) for i in range(40)]
    tables = [simulate(small_fleet(tmp_path, rows, replicas=3)).requests() for _ in range(2)]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
