"""Small hand-made workloads, each about one rule of the scheduler (S1 to S20) or of its clock."""

from __future__ import annotations

from typing import Any

from differential.workloads import EngineSettings, RequestSpec, Workload

DEFAULTS: EngineSettings = {
    "engine_version": "0.32",
    "async_scheduling": False,
    "policy": "fcfs",
    "max_num_seqs": 8,
    "max_num_batched_tokens": 500,
    "max_model_len": 4096,
    "block_size": 16,
    "num_gpu_blocks": 1000,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
}

SOON_S = 2.0**-10
"""Within the first step of an engine that starts at 0: a step takes at least 4 SOON_S."""


def request(name: str, prompt_tokens: int, output_tokens: int, **other: Any) -> RequestSpec:
    """A request that arrives at 0 and stops by length, unless `other` says otherwise."""
    spec: RequestSpec = {
        "id": name,
        "arrival_s": 0.0,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "max_tokens": output_tokens,
        "stop": "length",
        "priority": 0,
        "chain": [],
        "output_segment": None,
        "abort_s": None,
    }
    return spec | other  # type: ignore[return-value]


def _scenario(name: str, requests: list[RequestSpec], **settings: Any) -> Workload:
    engine: EngineSettings = DEFAULTS | settings  # type: ignore[assignment]
    return {"name": name, "features": ["scenario"], "engine": engine, "requests": requests}


def _several(count: int, prompt_tokens: int, output_tokens: int) -> list[RequestSpec]:
    return [request(f"r{i}", prompt_tokens, output_tokens) for i in range(count)]


def scenarios() -> list[Workload]:
    """All of them. Arrivals 1 s apart mean "after the one before has finished"."""
    shared = [(1, 48)]
    full = [(1, 48), (2, 16)]
    late = {"priority": 0, "arrival_s": SOON_S}
    gate = [request("r0", 40, 6), request("r1", 80, 2), request("r2", 16, 2)]
    warm = request("warm", 15, 1)
    return [
        _scenario("S1 token budget", _several(4, 60, 3), max_num_batched_tokens=100),
        _scenario(
            "S2 long_prefill_token_threshold",
            _several(3, 80, 2),
            max_num_batched_tokens=100,
            long_prefill_token_threshold=32,
        ),
        _scenario(
            "S2b threshold, single request",
            _several(1, 90, 2),
            max_num_batched_tokens=100,
            long_prefill_token_threshold=32,
        ),
        _scenario("S3 max_num_seqs", _several(4, 20, 2), max_num_seqs=2),
        _scenario("S4 preemption", _several(3, 32, 20), num_gpu_blocks=8),
        _scenario(
            "S4b preemption, no prefix cache",
            _several(3, 32, 20),
            num_gpu_blocks=8,
            enable_prefix_caching=False,
        ),
        _scenario(
            "S5 twins in one step",
            [request("a", 64, 2, chain=full), request("b", 64, 2, chain=full)],
        ),
        _scenario(
            "S6 last-token rule",
            [
                request("a", 64, 1, chain=full),
                request("b64", 64, 1, chain=full, arrival_s=1.0),
                request("c65", 65, 1, chain=full, arrival_s=2.0),
                request("d63", 63, 1, chain=shared, arrival_s=3.0),
            ],
        ),
        _scenario(
            "S7 eviction order",
            [
                request("a", 64, 1, chain=[(1, 64)]),
                request("b", 64, 1, chain=[(2, 64)], arrival_s=1.0),
                request("c", 96, 1, arrival_s=2.0),
                request("a again", 70, 1, chain=[(1, 64)], arrival_s=3.0),
                request("b again", 70, 1, chain=[(2, 64)], arrival_s=4.0),
            ],
            num_gpu_blocks=13,
        ),
        _scenario(
            "S8 free order of one request",
            [
                request("a", 70, 3, chain=[(1, 64)]),
                request("b", 144, 1, arrival_s=1.0),
                request("a again", 70, 3, chain=[(1, 64)], arrival_s=2.0),
            ],
            num_gpu_blocks=13,
        ),
        _scenario("S9 admission gate", gate, num_gpu_blocks=8),
        _scenario(
            "S9b no admission gate",
            gate,
            num_gpu_blocks=8,
            max_num_batched_tokens=50,
            scheduler_reserve_full_isl=False,
        ),
        _scenario(
            "S10 watermark",
            [request("r0", 80, 4), request("r1", 48, 2)],
            num_gpu_blocks=11,
            watermark=0.3,
        ),
        _scenario("S12 sync stop by length", _several(1, 20, 4)),
        _scenario("S12b async stop by length", _several(1, 20, 4), async_scheduling=True),
        _scenario(
            "S12c async eos",
            [request("r0", 20, 2, max_tokens=10, stop="eos")],
            async_scheduling=True,
        ),
        _scenario(
            "S12d async, freed slot seen a step later",
            _several(2, 20, 2),
            async_scheduling=True,
            max_num_seqs=1,
        ),
        _scenario("S12e sync, freed slot", _several(2, 20, 2), max_num_seqs=1),
        _scenario(
            "S13 priority order",
            [
                request("p2", 20, 4, priority=2),
                request("p1", 20, 4, priority=1),
                request("p0", 20, 2, priority=0),
                request("q0", 20, 2, **late),
            ],
            policy="priority",
            max_num_seqs=2,
        ),
        _scenario(
            "S13b priority victim",
            [
                warm,
                request("lo", 32, 20, priority=5, arrival_s=SOON_S),
                request("hi1", 32, 20, arrival_s=SOON_S * 2),
                request("hi2", 32, 20, arrival_s=SOON_S * 3),
            ],
            policy="priority",
            num_gpu_blocks=8,
        ),
        _scenario(
            "S13c priority, the requester is its own victim",
            [
                request("lo", 40, 30, priority=5),
                request("hi1", 40, 30, arrival_s=SOON_S),
                request("hi2", 40, 30, arrival_s=SOON_S * 2),
            ],
            policy="priority",
            num_gpu_blocks=10,
        ),
        _scenario(
            "S13d priority, the same with others before and behind it",
            [
                request("hi1", 40, 30),
                request("lo", 40, 30, priority=5, arrival_s=SOON_S),
                request("hi2", 34, 30, arrival_s=6 * SOON_S),
            ],
            policy="priority",
            num_gpu_blocks=11,
        ),
        _scenario("S16 decode block", _several(1, 15, 4), num_gpu_blocks=50),
        _scenario(
            "S17 chunked prefill off",
            [request("r0", 60, 2), request("r1", 60, 2), request("r2", 20, 2)],
            max_num_batched_tokens=100,
            max_model_len=100,
            enable_chunked_prefill=False,
        ),
        _scenario(
            "S20 multi-turn",
            [
                request("t1", 40, 25, chain=[(1, 40)], output_segment=2),
                request("t2", 75, 2, chain=[(1, 40), (2, 25)], arrival_s=2.0),
            ],
        ),
        _scenario(
            "C1 sync, arrival in mid-step",
            [request("r0", 20, 4), request("r1", 20, 3, arrival_s=SOON_S)],
        ),
        _scenario(
            "C1b async, arrival in mid-step waits for the step after the next",
            [request("r0", 20, 4), request("r1", 20, 3, arrival_s=SOON_S)],
            async_scheduling=True,
        ),
        _scenario(
            "C2 arrival at the very end of a step",
            # 16 tokens, no context: 2**-8 + 16 * 2**-15 = 9 * 2**-11
            [request("r0", 16, 4), request("r1", 20, 3, arrival_s=9 * 2.0**-11)],
        ),
        _scenario(
            "C2b async, arrival at the very end of a step",
            [request("r0", 16, 4), request("r1", 20, 3, arrival_s=9 * 2.0**-11)],
            async_scheduling=True,
        ),
        _scenario(
            "C3 aborts: running in mid-step, waiting, arrived in the same step",
            [
                request("r0", 40, 8, abort_s=5 * SOON_S),
                request("r1", 40, 8),
                request("r2", 40, 8, abort_s=2 * SOON_S),
                request("r3", 40, 8, arrival_s=SOON_S, abort_s=2 * SOON_S),
                request("r4", 40, 8, arrival_s=SOON_S),
            ],
            max_num_seqs=2,
        ),
        _scenario(
            "C3b the same, async",
            [
                request("r0", 40, 8, abort_s=5 * SOON_S),
                request("r1", 40, 8),
                request("r2", 40, 8, abort_s=2 * SOON_S),
                request("r3", 40, 8, arrival_s=SOON_S, abort_s=2 * SOON_S),
                request("r4", 40, 8, arrival_s=SOON_S),
            ],
            max_num_seqs=2,
            async_scheduling=True,
        ),
        _scenario(
            "C4 abort of a preempted request",
            [*_several(2, 32, 20), request("r2", 32, 20, abort_s=0.03)],
            num_gpu_blocks=8,
        ),
        _scenario(
            "C5 async, a preempted request ends by the token in flight",
            [request("r0", 15, 10), request("r1", 30, 2)],
            num_gpu_blocks=4,
            async_scheduling=True,
        ),
        _scenario(
            "C6 max_model_len stop",
            [request("r0", 50, 14, max_tokens=100), request("r1", 63, 1, max_tokens=100)],
            max_model_len=64,
        ),
        _scenario(
            "C6b async max_model_len stop",
            [request("r0", 50, 14, max_tokens=100), request("r1", 63, 1, max_tokens=100)],
            max_model_len=64,
            async_scheduling=True,
        ),
    ]
