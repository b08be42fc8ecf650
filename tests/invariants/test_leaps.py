"""Leaping over many engine steps in one event changes no digit of any result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from invariants.fleets import AZURE_CONV, MOONCAKE, check_conservation, run_both_ways

from fleetsim.sim.results.result import Result
from fleetsim.sim.scenario import load_scenario

SMALL_POOL = [
    "pools.chat.engine.max_model_len=8192",
    "pools.chat.engine.num_gpu_blocks_override=1200",
]


def _same(trace: Path | None, *overrides: str) -> Result:
    result = run_both_ways(
        load_scenario(None, overrides, trace=str(trace) if trace is not None else None)
    )
    check_conservation(result)
    return result


def _preemptions(result: Result) -> Any:
    return result.summary["pools"]["chat"]["preemptions"]


@pytest.mark.parametrize("time_scale", [1, 4, 12, 40])
def test_azure(shared_dir: Path, time_scale: int) -> None:
    """40 is far beyond what the fleet can serve."""
    _same(
        shared_dir / AZURE_CONV,
        "workload.head=2000",
        f"workload.time_scale={time_scale}",
    )


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_preemption(shared_dir: Path, policy: str) -> None:
    result = _same(
        shared_dir / AZURE_CONV,
        "workload.head=1200",
        "workload.time_scale=8",
        f"pools.chat.engine.scheduling_policy={policy}",
        *SMALL_POOL,
    )
    assert _preemptions(result) > 50


def test_sync_scheduling(shared_dir: Path) -> None:
    result = _same(
        shared_dir / AZURE_CONV,
        "workload.head=1200",
        "workload.time_scale=8",
        "pools.chat.engine.async_scheduling=false",
        *SMALL_POOL,
    )
    assert _preemptions(result) > 50


def test_mooncake(shared_dir: Path) -> None:
    result = _same(shared_dir / MOONCAKE, "workload.head=500", "pools.chat.replicas=16")
    assert result.summary["pools"]["chat"]["prefix_hit_rate"] > 0.05


def test_cache_events_with_delay(shared_dir: Path) -> None:
    """The router hears of every block at the same time, and so chooses the same replica."""
    knowledge = "router.prefix_knowledge={source: events, delay_s: 300ms}"
    for policy in ("prefix_affinity", "power_of_two"):
        _same(
            shared_dir / MOONCAKE,
            "workload.head=400",
            "workload.time_scale=3",
            "pools.chat.replicas=4",
            f"router.routing.policy={policy}",
            knowledge,
        )


def test_eviction_is_told_when_it_happens(shared_dir: Path) -> None:
    _same(
        shared_dir / MOONCAKE,
        "workload.head=400",
        "pools.chat.replicas=2",
        "pools.chat.engine.num_gpu_blocks_override=9000",
        "router.routing.policy=prefix_affinity",
        "router.prefix_knowledge={source: events, delay_s: 0}",
    )


def test_clients_who_give_up(shared_dir: Path) -> None:
    result = _same(
        shared_dir / AZURE_CONV,
        "workload.head=2000",
        "workload.time_scale=10",
        "client.timeout_s=3s",
        "client.network_delay_s=20ms",
    )
    assert result.summary["requests"]["cancelled"] > 100


@pytest.mark.parametrize("horizon_s", [3.3, 7.77, 11.0])
def test_a_horizon_in_mid_leap(shared_dir: Path, horizon_s: float) -> None:
    result = _same(
        shared_dir / AZURE_CONV,
        "workload.head=300",
        "workload.time_scale=4",
        f"measurement.horizon_s={horizon_s}",
    )
    assert result.summary["requests"]["unfinished"] > 0
    assert result.summary["run"]["end_s"] == horizon_s


def test_scraped_gauges_and_samples(shared_dir: Path) -> None:
    """What is read in mid-leap is what the steps would have left."""
    _same(
        shared_dir / AZURE_CONV,
        "workload.head=400",
        "results.sample_interval_s=37ms",
        "router.routing.policy=least_tokens",
        "router.log_decisions=true",
    )


def test_the_sample_trace() -> None:
    _same(None, "workload.head=3000")


def test_a_closed_loop() -> None:
    _same(
        None,
        "workload.head=1500",
        "workload.closed_loop={concurrency: 48}",
        "router.routing.policy=least_requests",
    )


@pytest.mark.slow
@pytest.mark.parametrize("time_scale", [1, 4, 12, 40])
@pytest.mark.parametrize("blocks", [1200, 3000, 29000])
def test_all_of_azure(shared_dir: Path, time_scale: int, blocks: int) -> None:
    _same(
        shared_dir / AZURE_CONV,
        f"workload.time_scale={time_scale}",
        "pools.chat.engine.max_model_len=16384",
        f"pools.chat.engine.num_gpu_blocks_override={blocks}",
    )


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", ["none", "own_history", "{source: events, delay_s: 1}"])
def test_all_of_mooncake(shared_dir: Path, knowledge: str) -> None:
    _same(shared_dir / MOONCAKE, "pools.chat.replicas=16", f"router.prefix_knowledge={knowledge}")
