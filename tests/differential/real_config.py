"""The configuration that vLLM's scheduler needs, without a model: a namespace of what it reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from differential.workloads import EngineSettings
from vllm.config import (
    CacheConfig,
    LoRAConfig,
    ObservabilityConfig,
    ParallelConfig,
    SchedulerConfig,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec


def vllm_config(engine: EngineSettings) -> Any:
    """Stands in for a VllmConfig: real scheduler and cache settings around a made-up model."""
    scheduler_config = SchedulerConfig(
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_model_len=engine["max_model_len"],
        is_encoder_decoder=False,
        enable_chunked_prefill=engine["enable_chunked_prefill"],
        policy=engine["policy"],
        long_prefill_token_threshold=engine["long_prefill_token_threshold"],
        watermark=engine["watermark"],
        scheduler_reserve_full_isl=engine["scheduler_reserve_full_isl"],
        async_scheduling=engine["async_scheduling"],
    )
    cache_config = CacheConfig(
        block_size=engine["block_size"], enable_prefix_caching=engine["enable_prefix_caching"]
    )
    cache_config.num_gpu_blocks = engine["num_gpu_blocks"]
    lora_config = LoRAConfig(max_loras=engine["max_loras"]) if "max_loras" in engine else None
    batches = 2 if engine["async_scheduling"] else 1
    model_config = SimpleNamespace(
        max_model_len=engine["max_model_len"],
        runner_type="generate",
        is_diffusion=False,
        uses_mrope=False,
        is_encoder_decoder=False,
        supports_multimodal_inputs=False,
        return_sampling_mask=False,
        skip_tokenizer_init=True,
        logits_processors=None,
    )
    return SimpleNamespace(
        model_config=model_config,
        scheduler_config=scheduler_config,
        cache_config=cache_config,
        lora_config=lora_config,
        kv_events_config=None,
        parallel_config=ParallelConfig(),
        observability_config=ObservabilityConfig(),
        is_mm_encoder_only=False,
        kv_transfer_config=None,
        ec_transfer_config=None,
        speculative_config=None,
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        max_in_flight_tokens=batches * engine["max_num_batched_tokens"],
        max_concurrent_batches=batches,
        use_v2_model_runner=False,
        aux_output_config=SimpleNamespace(enabled=False),
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
        structured_outputs_config=SimpleNamespace(enable_in_reasoning=False, reasoning_parser=""),
    )


def kv_cache_config(engine: EngineSettings) -> KVCacheConfig:
    """One group of full attention over the workload's blocks."""
    attention = FullAttentionSpec(
        block_size=engine["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return KVCacheConfig(
        num_blocks=engine["num_gpu_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
    )
