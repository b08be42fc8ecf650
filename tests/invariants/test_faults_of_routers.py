"""Faults of other simulators' and gateways' routers. Each must be impossible here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from invariants.fleets import (
    AZURE_CONV,
    STEP_S,
    check_conservation,
    run_both_ways,
    small_fleet,
    write_profile,
)

from fleetsim.calibration import StepCostParameters
from fleetsim.policies import names
from fleetsim.sim.prefix_knowledge import OwnHistory
from fleetsim.sim.request import Request
from fleetsim.sim.results.result import Result
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate

BALANCING = ["least_requests", "least_tokens", "power_of_two", "prefix_affinity"]


def _row(arrival_s: float, prompt: int, output: int, **other: Any) -> dict[str, Any]:
    return {
        "arrival_s": arrival_s,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "tenant": "t",
        **other,
    }


def _run(folder: Path, rows: list[dict[str, Any]], policy: str, **keywords: Any) -> Result:
    router = {"routing": {"policy": policy}, **keywords.pop("router", {})}
    result = run_both_ways(small_fleet(folder, rows, router=router, **keywords))
    check_conservation(result)
    return result


def _per_replica(result: Result, replicas: int) -> list[int]:
    return np.bincount(result.requests()["replica"], minlength=replicas).tolist()


@pytest.mark.parametrize("routing", names("routing"))
def test_a_refactor_broke_policies_at_construction(tmp_path: Path, routing: str) -> None:
    """Every policy runs: each routing with each admission and with each knowledge of prefixes."""
    chain = list(range(4))
    rows = [
        _row(i * STEP_S, 100, 5, block_ids=chain if i % 2 else [], block_tokens=25)
        for i in range(24)
    ]
    knowledge: list[Any] = ["none", "own_history", {"source": "events", "delay_s": 0.01}]
    for number, admission in enumerate(names("admission")):
        result = _run(
            tmp_path,
            rows,
            routing,
            replicas=(3, 1, 2)[number],
            router={
                "admission": {"policy": admission},
                "prefix_knowledge": knowledge[number],
                "log_decisions": True,
            },
        )
        served = result.summary["requests"]["completed"]
        assert served == (0 if admission == "reject_all" else 24)
        assert len(result.decisions()) == 24
        assert result.decisions()["reason"].str.len().gt(0).all()


@pytest.mark.parametrize("policy", BALANCING)
def test_least_loaded_counted_waiting_requests_only(tmp_path: Path, policy: str) -> None:
    """A request that has long been running, and waits for nothing, is still a load."""
    rows = [_row(0.0, 500, 900), _row(1.0, 500, 900), _row(2.0, 100, 5), _row(3.0, 100, 5)]
    placed = [
        _run(
            tmp_path, rows, policy, replicas=2, seed=seed, engine={"max_model_len": 1500}
        ).requests()["replica"].tolist()
        for seed in range(3)
    ]  # fmt: skip
    assert all(first != second for first, second, *_ in placed)


@pytest.mark.parametrize("policy", BALANCING)
def test_ties_always_went_to_replica_0(tmp_path: Path, policy: str) -> None:
    """Requests so far apart that the fleet is always idle."""
    rows = [_row(i * 10.0, 20, 2) for i in range(60)]
    counts = _per_replica(_run(tmp_path, rows, policy, replicas=3), 3)
    assert min(counts) >= 9


@pytest.mark.parametrize("policy", BALANCING)
def test_a_burst_at_one_instant_all_went_to_the_first_replica(tmp_path: Path, policy: str) -> None:
    """Local counters move at dispatch, so the second of a burst sees the first."""
    rows = [_row(5.0, 200, 20) for _ in range(40)]
    counts = _per_replica(_run(tmp_path, rows, policy, replicas=4), 4)
    most = 14 if policy == "power_of_two" else 10
    assert max(counts) <= most
    assert sum(counts) == 40


def test_fallback_on_the_lowest_request_rate_picked_the_busiest(tmp_path: Path) -> None:
    """One replica has few requests, all of them huge; load is tokens, not requests."""
    rows = [_row(0.0, 900, 500)] + [_row(0.001 * i, 10, 60) for i in range(1, 9)]
    result = _run(tmp_path, rows, "least_tokens", replicas=2, engine={"max_model_len": 1500})
    placed = result.requests()["replica"]
    assert (placed[1:] != placed[0]).all()


SPY = '''
from math import inf

from fleetsim.policies import Decision


class Spy:
    """Always the first replica; its scores are the signals that it was shown."""

    needs_scraped = True
    needs_prefix = True

    def __init__(self, params=None):
        pass

    def choose(self, request, pool, draws):
        view = pool.replicas[0]
        scraped = view.scraped
        age_s = -1.0 if scraped.age_s == inf else scraped.age_s
        return Decision(0, "spy", (
            age_s,
            float(scraped.num_requests_running + scraped.num_requests_waiting),
            float(view.outstanding_requests),
            float(view.queued_tokens),
            float(view.running_tokens),
            float(view.cached_tokens(request)),
        ))
'''


def _signals(folder: Path, rows: list[dict[str, Any]], **router: Any) -> pd.DataFrame:
    (folder / "spy.py").write_text(SPY)
    result = _run(
        folder, rows, "spy.py:Spy", router={"log_decisions": True, **router},
        profile=write_profile(folder, step_cost=StepCostParameters(constant_s=STEP_S)),
        engine={"async_scheduling": False},
    )  # fmt: skip
    columns = ["age_s", "scraped", "outstanding", "queued_tokens", "running_tokens", "cached"]
    decisions = result.decisions()
    return pd.DataFrame(decisions["scores"].tolist(), columns=columns)


def test_nobody_said_how_old_a_signal_was(tmp_path: Path) -> None:
    """Scraped gauges are as old as they say; local counters are exact at the same instant."""
    rows = [_row(t, 20, 100) for t in (0.0, 0.3, 0.5, 0.9, 1.0, 1.45)]
    seen = _signals(tmp_path, rows, scrape_interval_s=0.5)
    # at one instant an arrival comes before the scrape
    assert seen["age_s"].tolist() == pytest.approx([-1.0, 0.3, 0.5, 0.4, 0.5, 0.45])
    assert seen["outstanding"].tolist() == [0, 1, 2, 2, 3, 2]
    assert seen["scraped"].tolist() == [0, 1, 1, 3, 3, 4]


def test_nobody_said_what_in_flight_means(tmp_path: Path) -> None:
    """A request is its prompt until its first token, and from then on prompt and output so far."""
    rows = [
        _row(0.0, 40, 30),
        _row(STEP_S / 2, 7, 3),
        _row(STEP_S * 1.5, 9, 3),
        _row(STEP_S * 2.5, 1, 3),
        _row(STEP_S * 60, 5, 1),
    ]
    seen = _signals(tmp_path, rows)
    assert seen["outstanding"].tolist() == [0, 1, 2, 3, 0]
    assert seen["queued_tokens"].tolist() == [0, 40, 7, 9, 0]
    assert seen["running_tokens"].tolist() == [0, 0, 41, 42 + 8, 0]


def test_which_knowledge_feeds_the_cached_tokens_was_not_said(tmp_path: Path) -> None:
    """None: nothing. Own history: at once. Events: when the step has ended, and the delay later."""
    chain = list(range(4))
    times = [0.0, 0.001, 0.05, 0.3, 2.0]
    rows = [_row(t, 100, 2, block_ids=chain, block_tokens=25) for t in times]
    known = {
        "none": [0, 0, 0, 0, 0],
        "own_history": [0, 100, 100, 100, 100],
    }
    for source, tokens in known.items():
        seen = _signals(tmp_path, rows, prefix_knowledge=source)
        assert seen["cached"].tolist() == tokens, source
    for delay_s, tokens in {0.0: [0, 0, 96, 96, 96], 0.1: [0, 0, 0, 96, 96]}.items():
        seen = _signals(tmp_path, rows, prefix_knowledge={"source": "events", "delay_s": delay_s})
        assert seen["cached"].tolist() == tokens, delay_s


def _hot(folder: Path, **params: Any) -> Result:
    """Three requests a step, all with one prompt of 800 tokens before 40 of their own."""
    chain = list(range(16))
    rows = [
        _row(i * STEP_S / 3, 840, 20, block_ids=[*chain, 1000 + i], block_tokens=50)
        for i in range(300)
    ]
    return _run(
        folder,
        rows,
        "prefix_affinity",
        replicas=4,
        router={"routing": {"policy": "prefix_affinity", **params}},
        engine={"num_gpu_blocks_override": 1001, "max_num_seqs": 32},
    )


def test_one_hot_prefix_sent_everything_to_one_replica(tmp_path: Path) -> None:
    bounded = _hot(tmp_path, guard_floor_tokens=2000)
    assert max(_per_replica(bounded, 4)) < 0.4 * 300
    # without the bound it happens, so the bound is what prevents it
    unbounded = _hot(tmp_path, load_factor=1e6, guard_floor_tokens=1_000_000)
    assert max(_per_replica(unbounded, 4)) > 0.95 * 300
    ttft = [result.summary["latency"]["client_ttft_s"]["p90"] for result in (bounded, unbounded)]
    assert ttft[0] < ttft[1] / 2
    # and spreading costs each replica one prefill of the prefix, no more
    assert bounded.summary["pools"]["p"]["prefix_hit_rate"] > 0.9


@pytest.mark.parametrize("knowledge", ["none", "own_history", "{source: events, delay_s: 0.1}"])
def test_where_nothing_is_shared_the_prefix_bonus_cost_throughput(
    shared_dir: Path, knowledge: str
) -> None:
    """Azure's trace knows no prefixes: with the bonus and without, the same to the last digit."""
    tables = []
    for bonus in (0, 1, 50):
        scenario = load_scenario(
            None,
            [
                "workload.head=600",
                "workload.time_scale=8",
                f"router.routing={{policy: power_of_two, prefix_bonus: {bonus}}}",
                f"router.prefix_knowledge={knowledge}",
            ],
            trace=str(shared_dir / AZURE_CONV),
        )
        tables.append(simulate(scenario).requests())
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0], check_exact=True)


def test_where_much_is_shared_the_bonus_pays() -> None:
    """Else the test above would pass for a bonus that does nothing."""
    rates = []
    for bonus in (0, 4):
        scenario = load_scenario(
            None,
            [
                "workload.head=2500",
                "pools.chat.replicas=8",
                f"router.routing={{policy: power_of_two, prefix_bonus: {bonus}}}",
                "results.steps=none",
            ],
        )
        rates.append(simulate(scenario).summary["pools"]["chat"]["prefix_hit_rate"])
    assert rates[1] > rates[0] + 0.02


def test_the_prefix_index_grew_without_bound() -> None:
    """What the router remembers of a replica is never more than the replica could hold."""
    tokens = [100] * 500
    history = OwnHistory(tokens, 1000)
    for i in range(500):
        history.dispatched(Request(i, 0.0, 100, 1, prefix=(i,)))
        remembered = sum(
            history.cached_tokens(Request(0, 0.0, 100, 1, prefix=(j,))) for j in range(500)
        )
        assert remembered == min(i + 1, 10) * 100
    # the most recent ones
    assert history.cached_tokens(Request(0, 0.0, 100, 1, prefix=(499,))) == 100
    assert history.cached_tokens(Request(0, 0.0, 100, 1, prefix=(489,))) == 0


def test_an_idle_replica_with_stale_metrics_drew_all_traffic(tmp_path: Path) -> None:
    """With gauges that are never scraped again, the shipped policies balance as before."""
    rows = [_row(0.01 * i, 300, 40) for i in range(120)]
    for policy in BALANCING:
        fresh, stale = (
            _run(tmp_path, rows, policy, replicas=4, router={"scrape_interval_s": interval_s})
            for interval_s in (0.1, 1e6)
        )
        assert fresh.requests()["replica"].tolist() == stale.requests()["replica"].tolist()
        assert max(_per_replica(stale, 4)) < 60
