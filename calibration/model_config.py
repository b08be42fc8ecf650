"""Sizes of a dense model from its Hugging Face configuration."""

from typing import Any

from fleetsim.calibration.profile import Model, Shard
from fleetsim.traces.errors import InputError

_BYTES_PER_WEIGHT = 2


def model_from_config(
    where: str, hf_id: str, config: object, tensor_parallel_size: int = 1
) -> tuple[Model, Shard]:
    """The architecture, and what each GPU holds of it, with weights of 16 bits.

    Counts the weights of a decoder with grouped attention and a gated MLP: Llama, Qwen, Mistral
    and their like. Biases are left out.

    Args:
        where: the file, for messages.
        hf_id: the model's name.
        config: the content of config.json.
        tensor_parallel_size: GPUs that the weights are divided over.

    Raises:
        InputError: a count is missing or impossible, or the model is a mixture of experts.
    """
    if not isinstance(config, dict):
        raise InputError(f"{where}: is not a model's config.json")
    if any("expert" in key for key in config):
        raise InputError(f"{where}: is a mixture of experts; only dense models are supported")
    hidden, layers, heads, vocab, inner, context = (
        _count(where, config, key)
        for key in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "vocab_size",
            "intermediate_size",
            "max_position_embeddings",
        )
    )
    kv_heads = _count(where, config, "num_key_value_heads", heads)
    head_dim = _count(where, config, "head_dim", hidden // heads)
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    embeddings = (1 if config.get("tie_word_embeddings") else 2) * vocab * hidden
    weights = embeddings + layers * (attention + 3 * hidden * inner + 2 * hidden) + hidden
    model = Model(
        name=hf_id.rsplit("/", 1)[-1],
        hf_id=hf_id,
        num_layers=layers,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab,
        weights_bytes=_BYTES_PER_WEIGHT * weights,
        max_context_tokens=context,
    )
    # residual stream and norm, and both halves of the MLP: what is alive at once
    activations = 2 * hidden + 3 * inner // tensor_parallel_size
    shard = Shard(
        tensor_parallel_size=tensor_parallel_size,
        weights_bytes=model.weights_bytes // tensor_parallel_size,
        activation_bytes_per_token=_BYTES_PER_WEIGHT * activations,
        communication_bytes=0,
    )
    return model, shard


def _count(where: str, config: dict[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{where}: {key} is {value!r}; a model's config.json has a count there")
    return value
