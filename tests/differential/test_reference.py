"""The reference engine keeps its books, and faults planted in it are found and explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from differential import reference_engine
from differential.compare import first_difference
from differential.coverage import happened
from differential.generate import generate
from differential.golden import GOLDEN, load
from differential.recording import from_compact, to_compact
from differential.reference_pool import BlockPool
from differential.reference_scheduler import ReferenceScheduler, Sequence
from differential.workloads import outside_events

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_books_balance(seed: int) -> None:
    workload = generate(seed, scale=0.3)
    engine = workload["engine"]
    usable = engine["num_gpu_blocks"] - 1
    recording = reference_engine.run(workload)

    assert recording.requests.keys() == {request["id"] for request in workload["requests"]}
    for request in workload["requests"]:
        record = recording.requests[request["id"]]
        if record.reason == "abort":
            assert request["abort_s"] is not None
            assert record.tokens <= request["output_tokens"]
        else:
            assert record.tokens == request["output_tokens"]
            assert record.reason == {"eos": "stop", "length": "length"}[request["stop"]]
    for before, row in zip([None, *recording.rows[:-1]], recording.rows, strict=True):
        assert sum(tokens for _, tokens, _ in row.scheduled) <= engine["max_num_batched_tokens"]
        assert len(row.running) <= engine["max_num_seqs"]
        assert 0 <= row.free_scheduled <= usable
        assert not set(row.running) & set(row.waiting)
        if before is not None:
            assert row.t_start >= before.t_end
    assert recording.rows[-1].free_updated == usable
    assert from_compact(to_compact(recording, workload), workload) == recording


def test_same_seed_same_workload() -> None:
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)


def test_seeds_cover_every_feature() -> None:
    features: set[str] = set()
    counts = happened(generate(0, scale=0.3), reference_engine.run(generate(0, scale=0.3)))
    for seed in range(40):
        workload = generate(seed, scale=0.3)
        features.update(workload["features"])
        if seed in SEEDS:
            counts += happened(workload, reference_engine.run(workload))
    assert features == {
        "sync", "async", "fcfs", "priority", "block size 16", "block size 32",
        "prefix caching", "no prefix caching", "chunked prefill", "no chunked prefill",
        "reserve_full_isl", "no reserve_full_isl", "long_prefill_token_threshold", "watermark",
        "shared prefix", "shared prefix off the block grid", "twins", "multi-turn", "abort",
        "eos stop", "max_model_len stop", "prompt longer than the budget",
    }  # fmt: skip
    for event in ("preemptions", "hit tokens of resumed", "twin hits in one step"):
        assert counts[event] > 0


def test_events_at_one_time_keep_their_order() -> None:
    workload = generate(0, scale=0.3)
    workload["requests"][0]["abort_s"] = workload["requests"][0]["arrival_s"]
    events = outside_events(workload)
    assert events[0][1:] == (0, 0)
    assert events.index((workload["requests"][0]["arrival_s"], 1, 0)) > 0


# -- planted faults ------------------------------------------------------------------------------


def _first_running_is_victim(self: ReferenceScheduler) -> Sequence:
    return self.running[0]


def _release_head_first(original: Any) -> Callable[..., None]:
    return lambda self, blocks: original(self, list(reversed(blocks)))


def _no_token_left_to_compute(original: Any) -> Callable[..., Any]:
    def find(self: ReferenceScheduler, sequence: Sequence) -> Any:
        sequence.tokens.append(-1)
        try:
            return original(self, sequence)
        finally:
            sequence.tokens.pop()

    return find


def _preempted_to_the_back(original: Any) -> Callable[..., None]:
    def preempt(self: ReferenceScheduler, sequence: Sequence) -> None:
        original(self, sequence)
        self._waiting.append(self._waiting.pop(0))

    return preempt


def _registered_late(original: Any) -> Callable[..., None]:
    return lambda self, sequence, tokens: original(self, sequence, tokens - 1)


def _admitted_after_preemption(original: Any) -> Callable[..., Any]:
    def schedule_running(self: ReferenceScheduler, step: Any, budget: int, threshold: int) -> Any:
        budget = original(self, step, budget, threshold)
        step.preempted = []
        return budget

    return schedule_running


@pytest.mark.parametrize(
    ("owner", "method", "fault"),
    [
        (ReferenceScheduler, "_victim", lambda original: _first_running_is_victim),
        (ReferenceScheduler, "_preempt", _preempted_to_the_back),
        (ReferenceScheduler, "_find_prefix", _no_token_left_to_compute),
        (ReferenceScheduler, "_register", _registered_late),
        (ReferenceScheduler, "_schedule_running", _admitted_after_preemption),
        (BlockPool, "release", _release_head_first),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_planted_fault_is_caught(
    owner: type, method: str, fault: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, fault(getattr(owner, method)))
    caught = None
    for path in ("vllm_0.32_fcfs_scenarios", "vllm_0.32_fcfs_async"):
        for workload, golden in load(GOLDEN / f"{path}.json.gz")[1]:
            caught = caught or first_difference(golden, reference_engine.run(workload))
    assert caught is not None
    assert "step" in caught
    assert "=>" in caught
