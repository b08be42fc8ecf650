"""Configurations: where they come from, what they say, and which are refused."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from fleetsim.calibration import hf_config
from fleetsim.traces.errors import InputError

DENSE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
LATENT = {
    **DENSE,
    "architectures": ["DeepseekV3ForCausalLM"],
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core is not installed (extra: aic)",
)


def test_what_a_configuration_says_of_its_weights() -> None:
    assert hf_config.precision(DENSE) == "bf16"
    assert hf_config.precision({**DENSE, "quantization_config": {"quant_method": "fp8"}}) == "fp8"
    assert hf_config.precision({**DENSE, "quantization_config": {"bits": 4}}) == "unnamed"
    assert hf_config.has_block_scales({**DENSE, "quantization_config": BLOCKS})
    assert not hf_config.has_block_scales({**DENSE, "quantization_config": {"quant_method": "fp8"}})
    assert hf_config.block_size({**DENSE, "quantization_config": BLOCKS}) == 128
    assert hf_config.block_size(DENSE) == 1
    assert hf_config.is_mixture_of_experts({"num_local_experts": 8})
    assert not hf_config.is_mixture_of_experts(DENSE)


def test_what_a_configuration_says_of_its_attention() -> None:
    assert hf_config.num_kv_heads(DENSE) == 32
    assert hf_config.num_kv_heads({**DENSE, "num_key_value_heads": 8}) == 8
    assert hf_config.head_dim(DENSE) == 128
    assert hf_config.head_dim({**DENSE, "head_dim": 64}) == 64
    assert hf_config.has_latent_attention(LATENT)
    assert not hf_config.has_latent_attention(DENSE)


def test_sliding_windows() -> None:
    has = hf_config.has_sliding_window
    assert not has(DENSE)
    assert has({**DENSE, "sliding_window": 4096})
    assert not has({**DENSE, "sliding_window": 4096, "use_sliding_window": False})
    assert has({"layer_types": ["full_attention", "sliding_attention"]})
    assert not has({"layer_types": ["full_attention"], "sliding_window": 128})


@pytest.mark.parametrize("config", [DENSE, LATENT, {**DENSE, "quantization_config": BLOCKS}])
def test_whole_configurations_are_taken(config: dict[str, Any]) -> None:
    hf_config.check_config("m", config)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({**DENSE, "architectures": ["NemotronHForCausalLM"]}, "architectures is .'Nemotron"),
        ({**DENSE, "architectures": None}, "architectures is None"),
        *(
            ({**DENSE, "num_hidden_layers": n}, "num_hidden_layers is")
            for n in (None, 0, "36", True)
        ),
        ({**DENSE, "intermediate_size": 12288.0}, "intermediate_size is 12288.0"),
        ({**DENSE, "num_key_value_heads": -1}, "num_key_value_heads is -1"),
        ({**DENSE, "num_experts": "many"}, "num_experts is 'many'"),
        ({**LATENT, "q_lora_rank": None}, "q_lora_rank is None"),
        ({**DENSE, "mlp_only_layers": [0]}, "only some of its layers have experts"),
        ({**DENSE, "decoder_sparse_step": 2}, "only some of its layers have experts"),
        ({**DENSE, "quantization_config": "fp8"}, "quantization_config .* is not an object"),
        (
            {**DENSE, "quantization_config": {"quant_method": "awq"}},
            "its weights .* as awq; priced",
        ),
        (
            {**DENSE, "quantization_config": {**BLOCKS, "weight_block_size": [64, 64]}},
            "weight_block_size is not",
        ),
    ],
)
def test_what_cannot_be_priced_is_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=f"^m: {says}") as refused:
        hf_config.check_config("m", config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "config.json: no such file; give a folder that has one"),
        (b"{", "config.json: is not a JSON file"),
        (b"\xff\xfe", "config.json: is not a JSON file"),
        (b"[1]", "config.json: is not a model's config.json"),
    ],
)
def test_broken_folders_are_refused(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=says) as refused:
        hf_config.model_config(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_a_second_file_of_a_quantised_checkpoint_is_seen(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    assert hf_config.precision(hf_config.model_config(str(tmp_path))) == "bf16"
    (tmp_path / "hf_quant_config.json").write_text("{}")
    assert hf_config.precision(hf_config.model_config(str(tmp_path))) == "modelopt"


def test_a_folder_is_handed_over_as_a_copy_and_removed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    with hf_config.model_folder(str(tmp_path)) as folder:
        assert folder != str(tmp_path)
        assert json.loads(Path(folder, "config.json").read_text()) == DENSE
    assert not Path(folder).exists()


@needs_package
def test_models_that_differ_in_a_few_numbers() -> None:
    small, large = (hf_config.model_config(f"Qwen/Qwen3-{size}") for size in ("8B", "14B"))
    changed = {key for key in small if small[key] != large[key]}
    assert changed == {
        "hidden_size",
        "intermediate_size",
        "max_window_layers",
        "num_attention_heads",
        "num_hidden_layers",
    }
    quantised = hf_config.model_config("Qwen/Qwen3-14B-FP8")
    assert {key for key in quantised if quantised[key] != large.get(key)} == {"quantization_config"}
    shipped = hf_config.model_config("Qwen/Qwen3-32B-FP8")["quantization_config"]
    assert quantised["quantization_config"] == shipped
    llama = hf_config.model_config("meta-llama/Llama-3.3-70B-Instruct")
    assert llama == hf_config.model_config("meta-llama/Meta-Llama-3.1-70B")


@needs_package
def test_an_unknown_model_gets_the_nearest_names() -> None:
    with pytest.raises(InputError, match=r"Qwen3-15B: has no known .* nearest known: .*Qwen3-14B"):
        hf_config.model_config("Qwen/Qwen3-15B")
    with pytest.raises(InputError, match=r"configuration; give a folder with its config.json"):
        hf_config.model_config("?")
    assert "Qwen/Qwen3-8B" in hf_config.known_models()
    assert not any("quant_config" in model for model in hf_config.known_models())
