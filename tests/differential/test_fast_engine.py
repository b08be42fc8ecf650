"""The engine of the package is the literal reference engine, step for step, with leaps and without.

On random workloads over all features, and on slices of two real traces with KV pools so small that
requests are preempted. What is compared is every step's batch, hits, preemptions, queues, free
blocks and times (see README.md here).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from differential import fast_engine, reference_engine
from differential.compare import first_difference
from differential.coverage import happened
from differential.generate import generate
from differential.golden import GOLDEN, load
from differential.recording import Recording
from differential.workloads import EngineSettings, RequestSpec, Workload

from fleetsim.sim.engine.kv_cache import BlockPool
from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.traces import Trace, build_segments, load_trace

AZURE_CONV = "traces/azure_2023/AzureLLMInferenceTrace_conv.csv"
MOONCAKE = "traces/mooncake_fast25/conversation_trace.jsonl.gz"


def difference(workload: Workload, expected: Recording) -> str | None:
    """None if both ways of running the engine give the reference's recording."""
    # How an aborted request ended is for the fleet to say, and not for the engine.
    ended = {name: r for name, r in expected.requests.items() if r.reason != "abort"}
    for leaps in (False, True):
        found = fast_engine.run(workload, leaps)
        names = ("reference", "leaps" if leaps else "every step")
        text = first_difference(Recording(expected.rows, ended), found, names)
        if text is not None:
            return f"{workload['name']} ({', '.join(workload['features'])}): {text}"
    return None


def same(workload: Workload) -> Recording:
    """The recording, on which all three agree."""
    expected = reference_engine.run(workload)
    assert (text := difference(workload, expected)) is None, text
    return expected


def version(seed: int) -> str:
    """Both rules of priority preemption get their share."""
    return "0.33" if seed % 5 == 0 else "0.32"


# -- random workloads ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10_000, 10_030))
def test_random_workloads(seed: int) -> None:
    same(generate(seed, version(seed), scale=0.6))


@pytest.mark.parametrize(
    "seed",
    [
        # sync: an abort of a request that came in a leap, behind a blocked head of line
        20_008,
        # a decode and the prefill behind it fill equal blocks in one step
        20_016,
    ],
)
def test_what_fuzzing_once_found(seed: int) -> None:
    same(generate(seed, version(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(20_000, 20_600, 20))
def test_many_random_workloads(first: int) -> None:
    for seed in range(first, first + 20):
        same(generate(seed, version(seed)))


def test_random_workloads_do_what_is_rare() -> None:
    counts: Counter[str] = Counter()
    for seed in range(10_000, 10_030):
        workload = generate(seed, version(seed), scale=0.6)
        counts += happened(workload, reference_engine.run(workload))
    for event, least in {
        "preemptions": 100,
        "hit tokens of resumed": 100,
        "twin hits in one step": 10,
        "hits on a running request's output": 1,
        "ended by abort while running": 10,
        "ended by abort while waiting": 10,
        "ended by stop": 50,
    }.items():
        assert counts[event] >= least, (event, counts)


# -- real traces ---------------------------------------------------------------------------------


def from_trace(
    trace: Trace, arrivals_faster: float, usable_blocks: int, **settings: Any
) -> Workload:
    """A recorded trace as a workload; its prefix chains become segments.

    Every third request ends by its own stop token, which the engine cannot foresee.
    """
    segments = build_segments(trace)
    requests: list[RequestSpec] = []
    for i, (arrival_s, prompt, output) in enumerate(
        zip(
            trace.arrival_s.tolist(),
            trace.prompt_tokens.tolist(),
            trace.output_tokens.tolist(),
            strict=True,
        )
    ):
        by_eos = i % 3 == 0
        chain = []
        if segments is not None:
            for j in range(int(segments.offsets[i]), int(segments.offsets[i + 1])):
                segment = int(segments.segment_ids[j])
                tokens = int(segments.end_token[segment] - segments.start_token[segment])
                chain.append((segment, tokens))
        requests.append(
            {
                "id": f"r{i:05d}",
                # on the grid on which times are compared for equality
                "arrival_s": round(arrival_s / arrivals_faster * 2.0**20) / 2.0**20,
                "prompt_tokens": prompt,
                "output_tokens": output,
                "max_tokens": output + 7 if by_eos else output,
                "stop": "eos" if by_eos else "length",
                "priority": i % 2,
                "chain": chain,
                "output_segment": None,
                "abort_s": None,
            }
        )
    engine: EngineSettings = {
        "engine_version": "0.32",
        "async_scheduling": True,
        "policy": "fcfs",
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "max_model_len": 150_000,
        "block_size": 16,
        "num_gpu_blocks": usable_blocks + 1,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "watermark": 0.0,
        "scheduler_reserve_full_isl": True,
    }
    return {
        "name": f"{trace.metadata.source_name}, {len(trace)} requests, {usable_blocks} blocks",
        "features": sorted(f"{name} {value}" for name, value in settings.items()),
        "engine": engine | settings,  # type: ignore[typeddict-item]
        "requests": requests,
    }


def smaller(trace: Trace, prompts: int, outputs: int) -> Trace:
    """The same trace with fewer tokens: its blocks and prompts divided, its outputs too."""
    block_tokens = trace.metadata.block_tokens
    return replace(
        trace,
        prompt_tokens=-(-trace.prompt_tokens // prompts),
        output_tokens=-(-trace.output_tokens // outputs),
        metadata=replace(trace.metadata, block_tokens=block_tokens and block_tokens // prompts),
    )


MODES: list[dict[str, Any]] = [
    {},
    {"async_scheduling": False},
    {"policy": "priority"},
    {"scheduler_reserve_full_isl": False, "watermark": 0.05},
    {"long_prefill_token_threshold": 300},
    {"enable_prefix_caching": False},
]


def mode_name(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "defaults"


@pytest.mark.parametrize("settings", MODES[:3], ids=mode_name)
def test_azure(shared_dir: Path, settings: dict[str, Any]) -> None:
    trace = load_trace(shared_dir / AZURE_CONV).head(300)
    recording = same(from_trace(smaller(trace, 1, 4), 16.0, 400, **settings))
    assert sum(len(row.preempted) for row in recording.rows) > 10


@pytest.mark.parametrize("settings", MODES[:3], ids=mode_name)
def test_mooncake(shared_dir: Path, settings: dict[str, Any]) -> None:
    trace = load_trace(shared_dir / MOONCAKE).head(300)
    recording = same(from_trace(smaller(trace, 32, 4), 8.0, 250, **settings))
    assert sum(len(row.preempted) for row in recording.rows) > 10
    assert sum(sum(row.admitted.values()) for row in recording.rows) > 4000


@pytest.mark.slow
@pytest.mark.parametrize("settings", MODES, ids=mode_name)
@pytest.mark.parametrize("blocks", [900, 2000])
def test_more_of_azure(shared_dir: Path, settings: dict[str, Any], blocks: int) -> None:
    trace = load_trace(shared_dir / AZURE_CONV).head(1000)
    recording = same(from_trace(trace, 4.0, blocks, **settings))
    assert sum(len(row.preempted) for row in recording.rows) > 20


@pytest.mark.slow
@pytest.mark.parametrize("settings", MODES, ids=mode_name)
@pytest.mark.parametrize("blocks", [7_700, 12_000])
def test_mooncake_at_full_length(shared_dir: Path, settings: dict[str, Any], blocks: int) -> None:
    trace = load_trace(shared_dir / MOONCAKE).head(300)
    recording = same(from_trace(trace, 4.0, blocks, **settings))
    assert sum(len(row.preempted) for row in recording.rows) > 2


# -- planted faults ------------------------------------------------------------------------------


def _evicts_the_newest(original: Any) -> Callable[..., None]:
    def release(self: BlockPool, held: Any) -> None:
        original(self, list(reversed(held)))

    return release


def _leaps_too_far(original: Any) -> Callable[..., int]:
    def leap_limit(self: Scheduler, most: int) -> int:
        steps: int = original(self, most)
        return min(most, steps + 1) if steps else 0

    return leap_limit


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (BlockPool, "release", _evicts_the_newest),
        (Scheduler, "leap_limit", _leaps_too_far),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_planted_fault_is_caught(
    owner: Any, name: str, fault: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    caught = False
    for workload, golden in load(GOLDEN / "vllm_0.32_fcfs_async.json.gz")[1]:
        try:
            caught = caught or difference(workload, golden) is not None
        except (AssertionError, AttributeError, IndexError, KeyError, ValueError):
            caught = True  # the books did not balance
    assert caught
