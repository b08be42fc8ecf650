"""The same scenario and seed give the same result, to the last byte of every file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fleetsim.policies import names
from fleetsim.sim.randomness import Randomness
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate

ROOT = Path(__file__).parents[2]

RUN = """
import sys
from pathlib import Path
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate

out, overrides = Path(sys.argv[1]), sys.argv[2:]
print(simulate(load_scenario(None, overrides), out=out).content_hash())
"""

EVERYTHING = [
    "workload.head=700",
    "workload.time_scale=30",
    "workload.max_tokens=1024",
    "client.timeout_s=8s",
    "client.network_delay_s=5ms",
    "gateway.service_s=1ms",
    "gateway.workers=2",
    'gateway.tenants={"*": {limits: [{policy: token_bucket, tokens_per_minute: 3000000}]}}',
    "router.prefix_knowledge={source: events, delay_s: 100ms}",
    "router.log_decisions=true",
    "pools.chat.engine.max_model_len=8192",
    "pools.chat.engine.num_gpu_blocks_override=900",
    "pools.chat.engine.scheduling_policy=priority",
]

REQUEST_COLUMNS = [
    "request_id",
    "source_row",
    "tenant",
    "model",
    "session",
    "slo_class",
    "priority",
    "arrival_s",
    "prompt_tokens",
    "max_tokens",
    "output_tokens",
]


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _in_another_process(out: Path, hash_seed: str, *overrides: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(out), *overrides],
        cwd=out.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    first = _in_another_process(tmp_path / "here" / "a", "1", *EVERYTHING)
    second = _in_another_process(tmp_path / "elsewhere" / "b", "4242", *EVERYTHING)
    assert first == second
    files = _files(tmp_path / "here" / "a")
    assert files == _files(tmp_path / "elsewhere" / "b")
    assert {"summary.json", "status.json", "scenario.resolved.yaml", "usage.parquet"} <= set(files)
    assert any(name.startswith("requests/") for name in files)
    assert any(name.startswith("decisions/") for name in files)
    for path in (tmp_path / "here" / "a").rglob("*.*"):
        assert str(tmp_path).encode() not in path.read_bytes(), path


def test_a_result_in_memory_is_the_one_in_the_folder(tmp_path: Path) -> None:
    scenario = load_scenario(None, ["workload.head=100"])
    kept, written = simulate(scenario), simulate(scenario, out=tmp_path / "r")
    assert kept.content_hash() == written.content_hash()
    assert kept.summary == written.summary


def test_running_twice_in_one_process_leaves_no_trace() -> None:
    scenario = load_scenario(None, EVERYTHING)
    assert simulate(scenario).content_hash() == simulate(scenario).content_hash()


@pytest.fixture(scope="module")
def by_policy() -> dict[str, pd.DataFrame]:
    """The requests table of the same workload under every routing policy."""
    return {
        policy: simulate(
            load_scenario(
                None,
                [
                    "workload.synthetic={requests: 300, prompt_tokens: 700, output_tokens: 60, "
                    "random_range_ratio: 0.8, arrivals: {process: gamma, rate_per_s: 60, "
                    "burstiness: 0.5}}",
                    f"router.routing.policy={policy}",
                ],
                seed=11,
            )
        ).requests()
        for policy in names("routing")
    }


def test_a_policy_leaves_arrivals_and_lengths_alone(by_policy: dict[str, pd.DataFrame]) -> None:
    first = by_policy["random"][REQUEST_COLUMNS]
    for table in by_policy.values():
        pd.testing.assert_frame_equal(table[REQUEST_COLUMNS], first)
    replicas = {tuple(table["replica"]) for table in by_policy.values()}
    assert len(replicas) >= len(by_policy) - 2  # they did choose differently


def test_another_seed_moves_what_is_random_and_a_trace_not_at_all() -> None:
    synthetic = [
        "workload.synthetic={requests: 50, prompt_tokens: 700, output_tokens: 60, "
        "random_range_ratio: 0.8, arrivals: {rate_per_s: 60}}"
    ]
    one, other = (simulate(load_scenario(None, synthetic, seed=seed)).requests() for seed in (1, 2))
    for column in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert (one[column] != other[column]).any(), column
    one, other = (
        simulate(load_scenario(None, ["workload.head=200"], seed=seed)).requests()
        for seed in (1, 2)
    )
    pd.testing.assert_frame_equal(one[REQUEST_COLUMNS], other[REQUEST_COLUMNS])
    assert (one["replica"] != other["replica"]).any()


def test_a_request_draws_the_same_whatever_happens_to_others() -> None:
    """Two choices of request 40 are the same replicas when half of the others are refused."""
    overrides = [
        "workload.head=120",
        "workload.time_scale=50",
        "workload.max_tokens=512",
        "router.routing.policy=random",
    ]
    limit = "{policy: requests_per_minute, requests_per_minute: 60, burst_requests: 20}"
    alone = simulate(load_scenario(None, overrides)).requests()
    limited = simulate(
        load_scenario(None, [*overrides, f'gateway.tenants={{"*": {{limits: [{limit}]}}}}'])
    ).requests()
    served = limited["outcome"] == "completed"
    assert 0 < served.sum() < len(limited)
    assert (alone["replica"] == limited["replica"])[served].all()


def test_draws_are_keyed_by_seed_purpose_entity_and_attempt() -> None:
    draws = Randomness(7).draws("routing/chat")
    seen = [draws.bits(3, 1)]
    seen += [
        Randomness(8).draws("routing/chat").bits(3, 1),
        Randomness(7).draws("routing/code").bits(3, 1),
        draws.bits(4, 1),
        draws.bits(3, 0),
    ]
    assert len(set(seen)) == 5
    for entity in range(50):
        draws.uniform(entity)  # asking for others first changes nothing
    assert Randomness(7).draws("routing/chat").bits(3, 1) == seen[0]
