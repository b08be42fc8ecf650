"""Made-up step files whose step cost is known."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.calibration import StepCostParameters

COST = StepCostParameters(
    constant_s=5e-3,
    prefill_s=1e-3,
    token_slopes_s=(2e-5,),
    per_decode_s=1e-5,
    per_decode_kv_token_s=4e-8,
    per_prefill_square_s=2e-9,
    per_prefill_context_s=3e-9,
    per_mixed_kv_token_s=2e-8,
)

HEADER: dict[str, Any] = {
    "format": "fleetsim steps",
    "format_version": 1,
    "vllm_version": "0.32.0",
    "model": "org/Made-8B",
    "model_config": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    },
    "dtype": "bfloat16",
    "quantization": None,
    "kv_cache_dtype": "auto",
    "gpu": "Made GPU",
    "gpu_memory_bytes": 80 << 30,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "speculative": False,
    "scheduling_mode": "async",
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "max_model_len": 8192,
    "block_size": 16,
    "num_gpu_blocks": 20000,
}


def seconds(decodes: int, kv: int, prefills: list[tuple[int, int]]) -> float:
    tokens = decodes + sum(c for c, _ in prefills)
    return (
        COST.constant_s
        + COST.prefill_s * bool(prefills)
        + COST.token_slopes_s[0] * tokens
        + COST.per_decode_s * decodes
        + COST.per_decode_kv_token_s * kv
        + COST.per_prefill_square_s * sum(c * c for c, _ in prefills) / 2
        + COST.per_prefill_context_s * sum(c * p for c, p in prefills)
        + COST.per_mixed_kv_token_s * kv * bool(prefills)
    )


def made_steps(count: int = 1500, seed: int = 3, noise: float = 0.0) -> list[dict[str, Any]]:
    """Busy all the time, but for an idle second every hundred steps."""
    rng = np.random.default_rng(seed)
    steps, now_s = [], 1000.0
    for number in range(count):
        decodes = int(np.exp(rng.uniform(0, np.log(200)))) if rng.random() < 0.9 else 0
        prefills: list[tuple[int, int]] = []
        if not decodes or rng.random() < 0.4:
            for _ in range(int(rng.integers(1, 4))):
                chunk = int(np.exp(rng.uniform(np.log(8), np.log(600))))
                prefills.append((chunk, int(rng.choice([0, 0, 300, 2000]))))
        kv = sum(int(c) for c in np.exp(rng.uniform(np.log(30), np.log(4000), decodes)))
        idle = number % 100 == 99
        began_s = now_s
        now_s += seconds(decodes, kv, prefills) * (1.0 + noise * rng.exponential())
        steps.append(
            {
                "scheduled_s": began_s + 1e-6,
                "decodes": decodes,
                "decode_kv_tokens": kv,
                "prefills": prefills,
                "longest_context": 4000,
                "done_s": now_s,
                "running": 0 if idle else 5,
                "waiting": 0,
            }
        )
        if idle:
            now_s += 1.0
    return steps


def write_steps(
    path: Path, steps: list[dict[str, Any]], header: dict[str, Any] | None = None
) -> Path:
    lines = [json.dumps(line) for line in (HEADER if header is None else header, *steps)]
    path.write_text("\n".join(lines) + "\n")
    return path
