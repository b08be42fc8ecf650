"""Nothing is lost, whatever happens: requests, tokens, blocks, time.

Random small fleets, with everything that can befall a request: limits, admission, timeouts, a
horizon, preemption, closed loops. Arrivals and steps share a grid, so that many things happen at
one instant. Every run is taken with and without leaps.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from invariants.fleets import (
    STEP_S,
    check_conservation,
    run_both_ways,
    small_fleet,
    write_profile,
)

from fleetsim.policies import names
from fleetsim.sim.results.result import Result

BLOCK_TOKENS = 24  # of trace block ids; not a multiple of the engine's 16


def requests(seed: int) -> list[dict[str, Any]]:
    """10 to 70 requests in bursts, of three tenants, many with shared prefixes, some twins."""
    rng = Random(seed)
    gaps = rng.choice([[0, 0, 0, 1], [0, 1, 1, 2, 7], [1, 3, 40]])
    longest_prompt, longest_output = rng.choice([60, 60, 400]), rng.choice([4, 90, 150])
    rows: list[dict[str, Any]] = []
    chains: list[tuple[int, ...]] = [()]
    now = 0
    for _ in range(rng.randint(10, 70)):
        now += rng.choice(gaps)
        chain = rng.choice(chains)
        if rng.random() < 0.4 and len(chain) < 12:
            chain = (*chain, *(len(chains) * 100 + i for i in range(rng.randint(1, 3))))
            chains.append(chain)
        prompt = len(chain) * BLOCK_TOKENS + rng.randrange(BLOCK_TOKENS) * rng.randint(0, 1)
        rows.append(
            {
                "arrival_s": now * STEP_S,
                "prompt_tokens": prompt or rng.randint(1, longest_prompt),
                "output_tokens": rng.randint(1, longest_output),
                "max_tokens": rng.choice(["", "", "", "", 5, 64]),
                "tenant": rng.choice(["a", "b", ""]),
                "priority": rng.randint(0, 2),
                "block_ids": list(chain),
                "block_tokens": BLOCK_TOKENS,
            }
        )
    return rows


def fleet(seed: int) -> dict[str, Any]:
    """The keywords of `small_fleet`, but for the requests; half of them short of KV blocks."""
    rng = Random(seed)
    some = rng.choice

    def rarely(what: dict[str, Any], one_in: int = 4) -> dict[str, Any]:
        return what if rng.randrange(one_in) == 0 else {}

    budget = some([32, 64, 512, 512])
    engine = {
        "max_model_len": some([512, 416]),
        "max_num_seqs": min(budget, some([1, 3, 16, 16, 16])),
        "max_num_batched_tokens": budget,
        "num_gpu_blocks_override": some([33, 33, 33, 36, 45, 100, 1000]),
        "async_scheduling": some([True, False]),
        "enable_prefix_caching": some([True, True, True, False]),
        "scheduling_policy": some(["fcfs", "fcfs", "priority"]),
        "scheduler_reserve_full_isl": some([True, False]),
        "watermark": some([0.0, 0.0, 0.1]),
        "long_prefill_token_threshold": some([0, 0, 0, 20]),
    }
    client = {"network_delay_s": some([0.0, 0.0, STEP_S, 0.05])}
    client |= rarely({"timeout_s": some([STEP_S, 0.1, 0.3, 1.0, 1.0])})
    gateway: dict[str, Any] = {
        "service_s": some([0.0, 0.0, STEP_S / 4, 0.02]),
        "workers": some([1, 4]),
    }
    gateway |= rarely({"max_tokens_cap": 50}, 6)
    limits: list[dict[str, Any]] = [
        {"policy": "token_bucket", "tokens_per_minute": 20_000, "burst_tokens": 900},
        {"policy": "requests_per_minute", "requests_per_minute": 600, "burst_requests": 5},
        {"policy": "concurrency", "max_in_flight": 4},
    ]
    gateway |= rarely({"tenants": {some(["*", "a"]): {"limits": limits[: rng.randint(1, 3)]}}})
    router = {
        "routing": {"policy": some(list(names("routing")))},
        "admission": some(
            [{"policy": "always"}] * 5 + [{"policy": "predictive_ttft", "slo_ttft_s": 0.05}]
        ),
        "prefix_knowledge": some(["none", "own_history", {"source": "events", "delay_s": 0.02}]),
        "log_decisions": some([True, False]),
    }
    workload: dict[str, Any] = {
        "over_length": some(["reject", "truncate"]),
        "stop": some(["eos", "eos", "length"]),
        "max_tokens": some(["output", "output", 64]),
    }
    workload |= rarely({"closed_loop": {"concurrency": rng.randint(1, 12)}})
    return {
        "engine": engine,
        "replicas": some([1, 1, 1, 2, 3]),
        "client": client,
        "gateway": gateway,
        "router": router,
        "workload": workload,
        "seed": rng.randrange(4),
        "results": {"sample_interval_s": some([0.05, 1.0])},
        **rarely({"measurement": {"horizon_s": some([0.1, 0.5, 5.0])}}, 6),
    }


@cache
def _run(seed: int) -> Result:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = write_profile(folder, api_alpha_s=[0.0, 0.0, STEP_S, 0.013][seed % 4])
        return run_both_ways(small_fleet(folder, requests(seed), profile=profile, **fleet(seed)))


def check_metering(result: Result) -> None:
    """What the gateway metered is what the journeys say."""
    table = result.requests()
    served = (table["outcome"] == "completed") | (table["delivered_tokens"] > 0)
    usage = result.usage().set_index("tenant")
    assert usage.index.is_monotonic_increasing
    for tenant, metered in usage.iterrows():
        own = table["tenant"] == tenant
        assert metered["prompt_tokens"] == table["prompt_tokens"][own & served].sum()
        assert metered["completion_tokens"] == table["delivered_tokens"][own].sum()
        assert metered["rejected"] == (own & table["outcome"].eq("rejected")).sum()
        # who was cancelled in the gateway's own queue was never looked at
        never = own & table["outcome"].isin(["cancelled", "unfinished"]) & table["pool"].eq("")
        assert metered["requests"] <= own.sum() <= metered["requests"] + never.sum()


@pytest.mark.parametrize("seed", range(80))
def test_nothing_is_lost(seed: int) -> None:
    result = _run(seed)
    check_conservation(result)
    check_metering(result)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 4000, 100))
def test_nothing_is_lost_in_many_fleets(first: int) -> None:
    for seed in range(first, first + 100):
        result = _run(seed)
        check_conservation(result)
        check_metering(result)


def test_the_seeds_do_all_that_can_befall_a_request() -> None:
    """Else the tests above would prove less than they say."""
    outcomes: Counter[str] = Counter()
    slow_paths: Counter[str] = Counter()
    stalled = hits = 0
    for seed in range(80):
        result = _run(seed)
        table = result.requests()
        outcomes.update(table["outcome"] + " " + table["reason"])
        slow_paths.update(result.summary["pools"]["p"]["slow_paths"])
        stalled += int((table[["prefill_stall_s", "decode_stall_s"]] > 0).any(axis=1).sum())
        hits += int((table["cached_tokens"] > 0).sum())
    assert outcomes["completed "] > 1000
    for name in (
        "cancelled timeout",
        "rejected max_tokens_cap",
        "rejected rate_limit_tokens",
        "rejected rate_limit_requests",
        "rejected concurrency_limit",
        "rejected predicted_ttft",
        "unfinished ",
    ):
        assert outcomes[name] > 5, name
    assert slow_paths["shortage_steps"] > 50
    assert stalled > 50
    assert hits > 100
