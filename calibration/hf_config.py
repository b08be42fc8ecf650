"""Hugging Face configurations: a local folder's, or one that the kernel tables' package ships.

Some models differ from one that the package ships in a few numbers only, or in nothing. They are
listed here with what differs, from their public config.json.
"""

import difflib
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from fleetsim.traces.errors import InputError

_BLOCK_FP8 = {
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    }
}
_SAME_BUT: dict[str, tuple[str, dict[str, Any]]] = {
    "meta-llama/Llama-3.1-8B-Instruct": ("meta-llama/Meta-Llama-3.1-8B", {}),
    "meta-llama/Llama-3.1-70B-Instruct": ("meta-llama/Meta-Llama-3.1-70B", {}),
    "meta-llama/Llama-3.3-70B-Instruct": ("meta-llama/Meta-Llama-3.1-70B", {}),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": ("mistralai/Mixtral-8x7B-v0.1", {}),
    "Qwen/Qwen3-8B-FP8": ("Qwen/Qwen3-8B", _BLOCK_FP8),
    "Qwen/Qwen3-14B": (
        "Qwen/Qwen3-8B",
        {
            "hidden_size": 5120,
            "intermediate_size": 17408,
            "max_window_layers": 40,
            "num_attention_heads": 40,
            "num_hidden_layers": 40,
        },
    ),
    "Qwen/Qwen3-14B-FP8": ("Qwen/Qwen3-14B", _BLOCK_FP8),
}
_SUFFIX = "_config.json"
_QUANT_SUFFIX = "_hf_quant_config.json"
"""Of a second file that some quantised checkpoints have beside their config.json."""


def known_models() -> tuple[str, ...]:
    """Hugging Face ids that need no folder, in alphabetical order."""
    shipped = (path.name for path in _shipped().iterdir())
    ids = (
        name.removesuffix(_SUFFIX).replace("--", "/", 1)
        for name in shipped
        if name.endswith(_SUFFIX) and not name.endswith(_QUANT_SUFFIX)
    )
    return tuple(sorted({*ids, *_SAME_BUT}))


def model_config(model: str) -> dict[str, Any]:
    """A model's Hugging Face configuration, by the path of its folder or by its id.

    Raises:
        InputError: there is none, or it is not JSON; the package of kernel tables is missing.
    """
    folder = Path(model)
    if folder.is_dir():
        return _read(folder / "config.json", folder / "hf_quant_config.json")
    if model in _SAME_BUT:
        other, changes = _SAME_BUT[model]
        return {**model_config(other), **changes}
    path = _shipped() / f"{model.replace('/', '--')}{_SUFFIX}"
    if not path.is_file():
        near = difflib.get_close_matches(model, known_models(), n=3, cutoff=0.5)
        hint = f"nearest known: {', '.join(near)}; or " if near else ""
        raise InputError(
            f"{model}: has no known configuration; {hint}give a folder with its config.json"
        )
    return _read(path, path.with_name(path.name.replace(_SUFFIX, _QUANT_SUFFIX)))


@contextmanager
def model_folder(model: str) -> Iterator[str]:
    """A folder with the model's config.json, for as long as the context lasts.

    The package downloads what it does not know by name. A folder it reads, and nothing else.

    Raises:
        InputError: as for :func:`model_config`.
    """
    with tempfile.TemporaryDirectory(prefix="fleetsim-") as folder:
        config = json.dumps(model_config(model))
        Path(folder, "config.json").write_text(config, encoding="utf-8")
        yield folder


def is_mixture_of_experts(config: Mapping[str, Any]) -> bool:
    """Whether a Hugging Face configuration is of such a model."""
    return any("expert" in key for key in config)


def has_latent_attention(config: Mapping[str, Any]) -> bool:
    """Whether its KV cache keeps a latent vector instead of K and V (MLA, as in DeepSeek)."""
    return bool(config.get("kv_lora_rank"))


def num_kv_heads(config: Mapping[str, Any]) -> int:
    """Heads of K and V; as many as of Q where the configuration does not say."""
    return int(config.get("num_key_value_heads") or config["num_attention_heads"])


def head_dim(config: Mapping[str, Any]) -> int:
    """Numbers of one head's K, as many as of its V."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def has_sliding_window(config: Mapping[str, Any]) -> bool:
    """Whether some layers attend to the last so many tokens only."""
    if "layer_types" in config:
        return "sliding_attention" in config["layer_types"]
    return bool(config.get("sliding_window")) and config.get("use_sliding_window", True)


def precision(config: Mapping[str, Any]) -> str:
    """How the checkpoint's weights are kept, such as bf16, fp8 or mxfp4."""
    quantised = _quantisation(config)
    return str(quantised.get("quant_method", "unnamed")) if quantised else "bf16"


def has_block_scales(config: Mapping[str, Any]) -> bool:
    """Whether the checkpoint is in fp8 with a scale for each block of weights."""
    return precision(config) == "fp8" and bool(_quantisation(config).get("weight_block_size"))


ARCHITECTURES = (
    "DeepseekV3ForCausalLM",
    "GptOssForCausalLM",
    "LlamaForCausalLM",
    "MiMoForCausalLM",
    "MiniMaxM2ForCausalLM",
    "MixtralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
)
"""Those whose weights and KV cache are counted right here. Others keep a state for some layers,
an index of their keys, or images beside it."""

PRECISIONS = ("bf16", "fp8", "mxfp4")


def block_size(config: Mapping[str, Any]) -> int:
    """Weights in a row of an fp8 checkpoint that share a scale; 1 where there are no blocks."""
    return int(_quantisation(config)["weight_block_size"][0]) if has_block_scales(config) else 1


def check_config(model: str, config: Mapping[str, Any]) -> None:
    """Raise an InputError for a model of another form, and for counts that are impossible."""
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not set(map(str, architectures)) & set(ARCHITECTURES):
        raise InputError(
            f"{model}: architectures is {architectures!r} in its config.json; known are "
            f"{', '.join(ARCHITECTURES)}"
        )
    needed = [
        "num_hidden_layers",
        "num_attention_heads",
        "hidden_size",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    ]
    if has_latent_attention(config):
        needed += ["kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"]
        needed += ["v_head_dim"]
    needed += [key for key in _CHECKED_IF_PRESENT if config.get(key) is not None]
    for key in needed:
        value = config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                f"{model}: {key} is {value!r} in its config.json; a text model has a count there"
            )
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise InputError(f"{model}: only some of its layers have experts, which is not priced")
    if not isinstance(config.get("quantization_config") or {}, Mapping):
        raise InputError(f"{model}: quantization_config in its config.json is not an object")
    if has_block_scales(config) and _quantisation(config)["weight_block_size"] != [128, 128]:
        raise InputError(
            f"{model}: weight_block_size is not [128, 128], which is what was measured"
        )
    if precision(config) not in PRECISIONS:
        raise InputError(
            f"{model}: its weights are quantised as {precision(config)}; priced are "
            f"{', '.join(PRECISIONS)}"
        )


_CHECKED_IF_PRESENT = (
    "num_key_value_heads",
    "head_dim",
    "moe_intermediate_size",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_experts_per_tok",
)


def _quantisation(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("quantization_config") or {}


def _shipped() -> Path:
    try:
        return Path(str(files("aiconfigurator_core"))) / "model_configs"
    except ImportError as error:
        raise InputError(
            "aiconfigurator-core is not installed; it holds the measured kernel tables: "
            "pip install 'fleetsim[aic]'"
        ) from error


def _read(path: Path, quantised: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a folder that has one")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: is not a JSON file: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path}: is not a model's config.json")
    if quantised.is_file():
        config.setdefault("quantization_config", {}).setdefault("quant_method", "modelopt")
    return config
