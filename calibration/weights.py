"""Bytes of weights that each GPU holds, counted from a model's configuration as vLLM loads them.

The kernel tables' package has its own count, which leaves out what each of these architectures
does not share with Llama: the embeddings of mixtures of experts, the block scales and the padding
of gpt-oss (9 GiB of its 120b), and that DeepSeek's first layers have no experts (33 GB).
"""

from collections.abc import Mapping
from typing import Any

from fleetsim.calibration.hf_config import (
    has_block_scales,
    has_latent_attention,
    head_dim,
    num_kv_heads,
    precision,
)

_BF16 = 2.0
_FP8_BYTES = 1.0
_BLOCK_FP8_BYTES = 1.0 + 4 / 128**2
"""One float32 scale for each block of 128 x 128."""
_MXFP4_BYTES = 0.5 + 1 / 32
"""One scale of a byte for each 32 weights of 4 bits."""


def weights_bytes(
    config: Mapping[str, Any], tensor_parallel_size: int, weight_dtype: str | None
) -> int:
    """Bytes of weights on each GPU.

    Every matrix is divided over the GPUs, save those from a token to its latent vectors (MLA) and
    to its experts, which each GPU has whole, and KV heads, of which each GPU has at least one.
    Biases are left out, but for those of gpt-oss.

    Args:
        config: the model's Hugging Face configuration, checked by
            :func:`~fleetsim.calibration.hf_config.check_config`.
        tensor_parallel_size: GPUs of a replica; it divides the attention heads.
        weight_dtype: ``fp8`` where vLLM quantises the linear layers of a bf16 checkpoint.
    """
    tp = tensor_parallel_size
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    linear = _linear_bytes(config, weight_dtype)
    per_layer = linear * _attention(config, tp) + _BF16 * _small(config, tp)
    tables = 1 if config.get("tie_word_embeddings") else 2
    total: float = tables * _BF16 * config["vocab_size"] * hidden / tp + _BF16 * hidden
    total += layers * per_layer
    if has_latent_attention(config):
        total += layers * _BF16 * _absorbed(config, tp)
    experts = _experts(config)
    dense_layers = config.get("first_k_dense_replace", 0) if experts else layers
    if dense_layers:
        total += dense_layers * linear * 3 * hidden * config["intermediate_size"] / tp
    if experts:
        total += (layers - dense_layers) * _expert_layer_bytes(config, experts, tp, linear)
    return round(total)


def _linear_bytes(config: Mapping[str, Any], weight_dtype: str | None) -> float:
    if weight_dtype == "fp8" or precision(config) == "fp8":
        return _BLOCK_FP8_BYTES if has_block_scales(config) else _FP8_BYTES
    return _BF16


def _attention(config: Mapping[str, Any], tp: int) -> float:
    """Weights of one layer's projections on one GPU."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if has_latent_attention(config):
        nope, rope, value = (
            config[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        q_rank, kv_rank = config["q_lora_rank"], config["kv_lora_rank"]
        to_latent = hidden * (q_rank + kv_rank + rope)
        from_latent = heads * (q_rank * (nope + rope) + kv_rank * (nope + value) + value * hidden)
        return float(to_latent + from_latent / tp)
    kv_heads_per_gpu = -(-num_kv_heads(config) // tp)
    return float(hidden * head_dim(config) * (2 * heads / tp + 2 * kv_heads_per_gpu))


def _absorbed(config: Mapping[str, Any], tp: int) -> float:
    """vLLM keeps the two matrices between latent vector and heads once more, in bf16, so that
    decodes attend to the latent vectors themselves (``W_UK_T`` and ``W_UV`` in its
    ``mla_attention.py``, version 0.32)."""
    per_head = config["qk_nope_head_dim"] + config["v_head_dim"]
    return float(config["num_attention_heads"] * per_head * config["kv_lora_rank"] / tp)


def _small(config: Mapping[str, Any], tp: int) -> float:
    """Norms of one layer, and the biases and attention sinks of gpt-oss."""
    hidden = config["hidden_size"]
    small: float = 2.0 * hidden
    if has_latent_attention(config):
        small += config["q_lora_rank"] + config["kv_lora_rank"]
    if str(config.get("model_type", "")).startswith("qwen3"):
        small += 2 * head_dim(config)
    if config.get("model_type") == "gpt_oss":
        heads = config["num_attention_heads"]
        projected = (heads + 2 * num_kv_heads(config)) * head_dim(config)
        small += hidden + (heads + projected) / tp
    return small


def _experts(config: Mapping[str, Any]) -> int:
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return next((int(config[name]) for name in names if config.get(name)), 0)


def _expert_layer_bytes(config: Mapping[str, Any], experts: int, tp: int, linear: float) -> float:
    """Experts, shared experts and the router of one layer on one GPU."""
    hidden = config["hidden_size"]
    inner = config.get("moe_intermediate_size") or config["intermediate_size"]
    router: float = _BF16 * hidden * experts
    if precision(config) == "mxfp4":
        # what vLLM's kernels for Hopper pad to; 64.5 GiB for gpt-oss-120b on one H100, where
        # vLLM 0.14.1 logs 64.38 (vllm-project/vllm issue 33155)
        padded = _up(hidden, 256) * _up(-(-inner // tp), 64)
        biases = 2 * inner / tp + hidden
        return router + float(experts * (_MXFP4_BYTES * 3 * padded + _BF16 * (biases + 1)))
    shared = config.get("n_shared_experts") or 0
    # DeepSeek's router also has a float32 bias for each expert
    biases = 4 * experts if shared else 0
    return router + biases + float((experts + shared) * linear * 3 * hidden * inner / tp)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
