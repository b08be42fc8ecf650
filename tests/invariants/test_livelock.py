"""Requests that preempt each other for ever end the run with a reason, not never."""

import pytest
from differential import fast_engine
from differential.generate import generate

from fleetsim import InputError, load_scenario, simulate
from fleetsim.sim.engine import running


def test_a_livelock_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    # Priority, chunks of 20 tokens, no reservation, no prefix cache, 81 blocks: four prompts grow
    # until one takes another's blocks, and start again (vLLM's schedule, found by the fuzz).
    monkeypatch.setattr(running, "_FRUITLESS_PREEMPTIONS", 1_000)
    with pytest.raises(running.Livelock, match="1000 preemptions since a request ended"):
        fast_engine.run(generate(20765, "0.33"))


def test_the_user_is_told_where_and_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_FRUITLESS_PREEMPTIONS", 0)  # the first preemption is too much
    scenario = load_scenario(
        None,
        [
            "workload.synthetic={requests: 8, prompt_tokens: 400, output_tokens: 600,"
            " arrivals: {process: poisson, rate_per_s: 1000}}",
            "pools.chat.replicas=1",
            "pools.chat.engine={num_gpu_blocks_override: 200, max_model_len: 1500}",
        ],
    )
    with pytest.raises(InputError) as caught:
        simulate(scenario)
    message = str(caught.value)
    assert "pools.chat: at " in message
    assert "replica 0 preempt each other for ever" in message
    assert "scheduler_reserve_full_isl: true" in message
    assert "\n" not in message
