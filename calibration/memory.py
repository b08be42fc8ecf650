"""GPU memory of one replica: what the weights take, and how many KV blocks are left."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetsim.traces.errors import InputError

if TYPE_CHECKING:
    from fleetsim.calibration.profile import Profile

KV_DTYPE_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
"""Bytes of one K or V element, by vLLM's ``--kv-cache-dtype``; ``auto`` is the profile's own."""

SAMPLER_BYTES_PER_LOGIT = 4
"""One float32 copy of the logits of every sequence of the largest batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The ``vllm serve`` flags on which the number of KV blocks depends, under vLLM's names.

    ``num_gpu_blocks_override`` replaces the computed number, as it does in vLLM: give what a
    real engine logged at start-up and the estimate is not needed.

    Raises:
        InputError: a value out of range, naming the flag.
    """

    gpu_memory_utilization: float = 0.92
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    tensor_parallel_size: int = 1
    num_gpu_blocks_override: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise InputError(
                f"gpu_memory_utilization: must be above 0 and at most 1, "
                f"got {self.gpu_memory_utilization}"
            )
        for flag in ("max_num_batched_tokens", "max_num_seqs", "block_size"):
            if getattr(self, flag) < 1:
                raise InputError(f"{flag}: must be at least 1, got {getattr(self, flag)}")
        if self.num_gpu_blocks_override is not None and self.num_gpu_blocks_override < 1:
            raise InputError(
                f"num_gpu_blocks_override: must be at least 1, got {self.num_gpu_blocks_override}"
            )
        if self.kv_cache_dtype != "auto" and self.kv_cache_dtype not in KV_DTYPE_BYTES:
            raise InputError(
                f"kv_cache_dtype: {self.kv_cache_dtype!r} is unknown; "
                f"use auto, {', '.join(KV_DTYPE_BYTES)}"
            )


def kv_bytes_per_token(
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    bytes_per_element: int,
    latent_attention: bool = False,
) -> int:
    """Bytes of K and V that one token keeps in all layers, over the whole replica.

    With latent attention (MLA) each head keeps one vector, from which both K and V are computed,
    as ``MLAAttentionSpec`` of vLLM 0.32 has it.
    """
    vectors = 1 if latent_attention else 2
    return vectors * num_layers * num_kv_heads * head_dim * bytes_per_element


def kv_bytes_per_token_per_gpu(
    profile: "Profile", tensor_parallel_size: int, kv_cache_dtype: str = "auto"
) -> int:
    """Bytes of K and V that one token keeps on each GPU.

    KV heads are divided over the GPUs; where there are more GPUs than KV heads each keeps one.
    Latent attention has a single one, so each GPU keeps all of it.
    """
    dtype = profile.kv_cache_dtype if kv_cache_dtype == "auto" else kv_cache_dtype
    return profile.model.kv_bytes_per_token(KV_DTYPE_BYTES[dtype], tensor_parallel_size)


def kv_blocks(profile: "Profile", settings: EngineSettings) -> int:
    """KV blocks of one replica, as vLLM would count them at start-up (``num_gpu_blocks``).

    Per GPU: ``hbm_bytes * gpu_memory_utilization`` less weights, activations of
    ``max_num_batched_tokens``, logits of ``max_num_seqs``, communication buffers, CUDA graphs
    and the runtime; what is left is cut into blocks. ``docs/calibration.md`` gives the sources
    and the error against block counts of real engines.

    Raises:
        InputError: the model does not fit, saying by how many GB; or the profile has no sizes
            for this ``tensor_parallel_size``.
    """
    memory = profile.memory
    shard = memory.shard(settings.tensor_parallel_size)
    if shard is None:
        known = ", ".join(str(s.tensor_parallel_size) for s in memory.shards)
        raise InputError(
            f"{profile.name}: tensor_parallel_size {settings.tensor_parallel_size} has no sizes "
            f"in this profile; use one of {known}"
        )
    logits_bytes = SAMPLER_BYTES_PER_LOGIT * profile.model.vocab_size * settings.max_num_seqs
    taken_bytes = (
        shard.weights_bytes
        + shard.communication_bytes
        + shard.activation_bytes_per_token * settings.max_num_batched_tokens
        + logits_bytes
        + memory.cuda_graph_bytes
        + memory.runtime_bytes
    )
    block_bytes = settings.block_size * kv_bytes_per_token_per_gpu(
        profile, settings.tensor_parallel_size, settings.kv_cache_dtype
    )
    usable_bytes = int(profile.gpu.hbm_bytes * settings.gpu_memory_utilization)
    free_bytes = usable_bytes - taken_bytes
    if free_bytes < block_bytes:
        raise InputError(
            f"{profile.name}: does not fit: weights take {shard.weights_bytes / 1e9:.1f} GB and "
            f"working memory {(taken_bytes - shard.weights_bytes) / 1e9:.1f} GB of each GPU, "
            f"{(block_bytes - free_bytes) / 1e9:.1f} GB more than gpu_memory_utilization "
            f"{settings.gpu_memory_utilization:g} x {profile.gpu.hbm_bytes / 1e9:.1f} GB; use more "
            f"GPUs than tensor_parallel_size {settings.tensor_parallel_size}, larger ones, or a "
            "smaller precision"
        )
    if settings.num_gpu_blocks_override is not None:
        return settings.num_gpu_blocks_override
    return free_bytes // block_bytes
