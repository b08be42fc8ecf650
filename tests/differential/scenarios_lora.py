"""Small hand-made workloads about LoRA slots (L1 to L7), for either version's rules."""

from __future__ import annotations

from typing import Any

from differential.scenarios import DEFAULTS, SOON_S, request
from differential.workloads import EngineSettings, RequestSpec, Workload, check


def _scenario(
    name: str, requests: list[RequestSpec], version: str, max_loras: int, **settings: Any
) -> Workload:
    engine: EngineSettings = DEFAULTS | {  # type: ignore[assignment]
        "engine_version": version,
        "max_loras": max_loras,
        **settings,
    }
    workload: Workload = {
        "name": name,
        "features": [],
        "engine": engine,
        "requests": sorted(requests, key=lambda r: r["arrival_s"]),
    }
    check(workload)
    return workload


def _crowd(adapters: list[int], output_tokens: int = 4, **other: Any) -> list[RequestSpec]:
    return [
        request(f"r{i}", 20, output_tokens + i % 3, **({"adapter": a} if a else {}), **other)
        for i, a in enumerate(adapters)
    ]


def lora_scenarios(version: str) -> list[Workload]:
    """All of them."""
    tokens = [(1, 64)]
    late = SOON_S * 8
    return [
        _scenario("L1 passed over, and back in order", _crowd([1, 2, 3, 2, 1, 0, 3]), version, 1),
        _scenario(
            "L1b the same, async, few places",
            _crowd([1, 2, 3, 2, 1, 0, 3]),
            version,
            2,
            max_num_seqs=3,
            async_scheduling=True,
        ),
        _scenario(
            "L2 an arrival passes all that wait",
            [
                request("a", 20, 30, adapter=1),
                request("b", 20, 4, adapter=2),
                request("c", 20, 4, adapter=3, arrival_s=late),
                request("d", 20, 4, adapter=1, arrival_s=2 * late),
                request("e", 20, 4, arrival_s=3 * late),
            ],
            version,
            1,
        ),
        _scenario(
            "L3 async, a slot whose last token is under way",
            [
                request("a", 20, 4, adapter=1),
                request("b", 20, 4, adapter=2),
                request("c", 20, 9),
            ],
            version,
            1,
            async_scheduling=True,
        ),
        _scenario(
            "L4 the same tokens, other blocks",
            [
                request("a", 70, 2, chain=tokens, adapter=1),
                request("b", 70, 2, chain=tokens, adapter=2, arrival_s=1.0),
                request("c", 70, 2, chain=tokens, arrival_s=2.0),
                request("d", 70, 2, chain=tokens, adapter=1, arrival_s=3.0),
            ],
            version,
            2,
        ),
        _scenario(
            "L5 a preempted one gives up its slot",
            [
                request("a", 32, 24, adapter=1),
                request("b", 32, 20, adapter=2),
                request("c", 32, 20, adapter=1),
                request("d", 16, 6, adapter=3, arrival_s=SOON_S),
            ],
            version,
            2,
            num_gpu_blocks=8,
        ),
        _scenario(
            "L6 behind one that waits for a slot, one that waits for blocks",
            [
                request("a", 60, 20, adapter=1),
                request("b", 20, 4, adapter=2),
                request("c", 100, 4),
                request("d", 10, 4),
            ],
            version,
            1,
            num_gpu_blocks=10,
        ),
        _scenario(
            "L7 priority",
            [
                request("lo", 20, 8, adapter=1, priority=3),
                request("mid", 20, 8, adapter=2, priority=2, arrival_s=SOON_S),
                request("hi", 20, 8, adapter=1, priority=1, arrival_s=SOON_S),
                request("top", 20, 8, adapter=3, priority=0, arrival_s=SOON_S),
            ],
            version,
            1,
            policy="priority",
        ),
    ]
