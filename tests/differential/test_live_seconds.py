"""What is said about a live engine's seconds is right where the seconds are known."""

from dataclasses import replace
from itertools import pairwise

import pytest
from differential import reference_engine
from differential.live_load import Load
from differential.live_seconds import fit, measured, simulated
from differential.recording import Recording
from differential.workloads import (
    STEP_BASE_S,
    STEP_PER_CONTEXT_TOKEN_S,
    STEP_PER_TOKEN_S,
    Workload,
)

from fleetsim.sim.engine.step_cost import StepCost, StepCostParameters

REQUESTS = 60


def small_workload() -> Workload:
    """Whole prompts in one step and no prefix cache: no prefill has context before it."""
    return {
        "name": "small",
        "features": [],
        "engine": {
            "engine_version": "0.32",
            "async_scheduling": False,
            "policy": "fcfs",
            "max_num_seqs": 16,
            "max_num_batched_tokens": 2048,
            "max_model_len": 1024,
            "block_size": 32,
            "num_gpu_blocks": 400,
            "enable_prefix_caching": False,
            "enable_chunked_prefill": False,
            "long_prefill_token_threshold": 0,
            "watermark": 0.0,
            "scheduler_reserve_full_isl": True,
        },
        "requests": [
            {
                "id": f"r{i:03d}",
                "arrival_s": i * 2.0**-7,
                "prompt_tokens": 20 + i * 37 % 200,
                "output_tokens": 2 + i * 13 % 40,
                "max_tokens": 2 + i * 13 % 40,
                "stop": "length",
                "priority": 0,
                "chain": [],
                "output_segment": None,
                "abort_s": None,
            }
            for i in range(REQUESTS)
        ],
    }


def test_fit_finds_the_coefficients_that_made_the_seconds() -> None:
    true = StepCostParameters(
        constant_s=4e-3,
        token_slopes_s=(3e-5,),
        per_decode_s=2e-4,
        per_decode_kv_token_s=1e-6,
        per_prefill_square_s=2e-7,
    )
    cost = StepCost(true, mode="sync")
    recording = reference_engine.run(small_workload())
    for row in recording.rows:
        decodes = [context for _, tokens, context in row.scheduled if tokens == 1 and context]
        chunks = [tokens for _, tokens, context in row.scheduled if not context]
        row.t_end = row.t_start + cost.step_s(
            len(decodes), sum(decodes), sum(chunks), len(chunks), sum(c * c / 2 for c in chunks), 0
        )
    found = fit(recording)
    assert found.r_squared > 1 - 1e-9
    assert found.median_error < 1e-9
    assert found.parameters.token_slopes_s == pytest.approx(true.token_slopes_s)
    for name in ("constant_s", "per_decode_s", "per_decode_kv_token_s", "per_prefill_square_s"):
        assert getattr(found.parameters, name) == pytest.approx(getattr(true, name)), name


def test_a_coefficient_that_would_be_negative_is_left_out() -> None:
    recording = reference_engine.run(small_workload())
    for row in recording.rows:  # whatever decodes, the step is the shorter for it
        decodes = sum(context > 0 for _, _, context in row.scheduled)
        row.t_end = row.t_start + 0.1 - decodes * 1e-3
    found = fit(recording)
    assert min(found.parameters.token_slopes_s) >= 0.0
    assert found.parameters.per_decode_s == 0.0


def test_with_the_true_cost_simulated_is_measured() -> None:
    workload = small_workload()
    recording = reference_engine.run(workload)
    true = StepCostParameters(
        constant_s=STEP_BASE_S,
        token_slopes_s=(STEP_PER_TOKEN_S,),
        per_decode_kv_token_s=STEP_PER_CONTEXT_TOKEN_S,
    )
    due_s = {request["id"]: request["arrival_s"] for request in workload["requests"]}
    live, ours = measured(workload, recording, due_s), simulated(workload, due_s, true)
    assert len(live.ttft_s) == len(live.tpot_s) == REQUESTS
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert getattr(ours, name) == pytest.approx(getattr(live, name), rel=1e-9), name
    slower = simulated(workload, due_s, replace(true, constant_s=2 * STEP_BASE_S))
    assert min(slower.tpot_s - live.tpot_s) > 0.0


def test_measured_latency_by_hand() -> None:
    workload = small_workload()
    workload["requests"] = workload["requests"][:1]
    recording = reference_engine.run(workload)
    (record,) = recording.requests.values()
    latency = measured(workload, Recording(recording.rows, recording.requests), {"r000": -1.0})
    assert record.first_token_s is not None
    assert latency.ttft_s.tolist() == [record.first_token_s + 1.0]
    assert latency.e2e_s.tolist() == [record.end_s + 1.0]
    # two tokens: one gap
    assert latency.tpot_s.tolist() == [record.end_s - record.first_token_s]


def test_the_live_load_is_seeded_and_consistent() -> None:
    first, again = (Load(1, 200, 10.0, 1024).requests for _ in range(2))
    assert first == again
    assert first != Load(2, 200, 10.0, 1024).requests
    tokens_of: dict[int, list[int]] = {}
    for request in first:
        start = 0
        for segment, length in request.chain:
            assert (
                tokens_of.setdefault(segment, request.tokens[start : start + length])
                == (request.tokens[start : start + length])
            )
            start += length
        assert start == len(request.tokens)
        assert start + request.max_tokens <= 1024
    assert sum(request.follow_up is not None for request in first) > 20
    assert sum(request.may_stop for request in first) > 20
    assert sum(request.give_up_after is not None for request in first) > 2
    assert sum(a.due_s == b.due_s for a, b in pairwise(first)) > 60
