"""A profile from the times of single layers."""

import json
from pathlib import Path

import numpy as np
import pytest
from unit.calibration import layer_folder
from unit.calibration.layer_folder import write_layer_folder

from fleetsim.calibration.from_layers import profile_from_layers
from fleetsim.calibration.layer_steps import layer_steps, padded_tokens
from fleetsim.calibration.layer_tables import read_layer_tables
from fleetsim.calibration.library import load_profile
from fleetsim.traces.errors import InputError


def test_the_coefficients_of_a_known_cost_come_back(tmp_path: Path) -> None:
    profile = profile_from_layers(write_layer_folder(tmp_path / "p"), name="known")
    cost, layers = profile.step_cost, layer_folder.LAYERS
    per_us = {
        "per_decode_kv_token_s": layer_folder.PER_KV_US,
        "per_mixed_kv_token_s": layer_folder.MIXED_KV_US,
        "per_prefill_square_s": layer_folder.SQUARE_US,
        "per_prefill_context_s": layer_folder.CONTEXT_US,
    }
    for name, microseconds in per_us.items():
        assert getattr(cost, name) == pytest.approx(layers * microseconds * 1e-6, rel=0.03), name
    assert profile.fit_error is not None
    assert profile.fit_error.unseen.worst < 0.02


def test_a_step_is_its_layers_added_up(tmp_path: Path) -> None:
    tables = read_layer_tables(write_layer_folder(tmp_path / "p"))
    steps = layer_steps(tables, layer_folder.LAYERS, 10**9)
    which = (steps.n_decodes == 8) & (steps.kv_tokens == 8 * 1024) & (steps.n_prefills == 0)
    dense_us = {k: v + layer_folder.SLOPE_US * 8 for k, v in layer_folder.DENSE_US.items()}
    once_us = dense_us.pop("embedding") + dense_us.pop("final_layernorm")
    layer_us = sum(dense_us.values()) + dense_us["layernorm"]  # the norm runs twice
    layer_us += layer_folder.attention_us(0, 0, 8, 1024)
    expected_us = layer_folder.LAYERS * layer_us + once_us + 1008.0 + 28.0
    assert steps.take(which).seconds == pytest.approx([expected_us * 1e-6])


def test_small_steps_are_padded_as_cuda_graphs_pad_them() -> None:
    given = np.array([1.0, 2, 3, 4, 5, 9, 256, 257, 512, 513])
    assert padded_tokens(given).tolist() == [1, 2, 4, 4, 8, 16, 256, 272, 512, 513]


def test_steps_that_the_model_has_no_memory_for_are_left_out(tmp_path: Path) -> None:
    tables = read_layer_tables(write_layer_folder(tmp_path / "p"))
    assert layer_steps(tables, 32, 5_000).kv_tokens.max() <= 5_000
    assert layer_steps(tables, 32, 10**9).tokens.max() <= 2048


def test_the_profile_is_a_whole_file(tmp_path: Path) -> None:
    profile = profile_from_layers(write_layer_folder(tmp_path / "p"), name="known")
    path = tmp_path / "known.json"
    path.write_text(profile.to_json())
    assert load_profile(path) == profile


def test_a_model_is_described_by_its_config(tmp_path: Path) -> None:
    folder = write_layer_folder(tmp_path / "p")
    (folder / "meta.yaml").write_text(layer_folder.META.replace("Llama-3.1-8B", "Mine-8B"))
    config = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match="give its Hugging Face config"):
        profile_from_layers(folder, name="mine")
    mine = profile_from_layers(folder, name="mine", model_config=path)
    assert mine.model.weights_bytes == 16_060_522_496  # of Llama 3.1 8B, as published
    path.write_text(json.dumps(config | {"num_local_experts": 8}))
    with pytest.raises(InputError, match="mixture of experts"):
        profile_from_layers(folder, name="mine", model_config=path)
    path.write_text(json.dumps(config | {"num_hidden_layers": 0}))
    with pytest.raises(InputError, match="num_hidden_layers is 0"):
        profile_from_layers(folder, name="mine", model_config=path)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("meta.yaml", "gpu:", "chip:", "gpu: this key is missing"),
        ("meta.yaml", "gpu: NVIDIA GeForce RTX 4090", "gpu: XPU", "give --gpu-memory-gib"),
        ("meta.yaml", "vllm_version", "tp_degrees: [2]\nvllm_version", "only profiles of one GPU"),
        ("meta.yaml", "model: ", "model: [", "cannot be read as YAML"),
        ("dense.csv", "time_us", "time_ms", "column time_us is missing"),
        ("dense.csv", "act_fn,8,", "act_fn,8,nan", "row .*: time_us is nan"),
        ("dense.csv", "act_fn,8,", "act_fn,8,-", "row .*: time_us is -"),
        ("dense.csv", "act_fn,8,", "act_fn,8,99999999", "below 10 s"),
        ("dense.csv", "act_fn", "moe_gate", "layer 'moe_gate' is unknown"),
        ("per_sequence.csv", "sampler", "lm_head", "layer 'sampler' is missing"),
        ("attention.csv", ",8,1024,", ",x,1024,", "n_decode is x"),
    ],
)
def test_bad_input_is_refused_by_name(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    folder = write_layer_folder(tmp_path / "p")
    path = folder / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=message) as refused:
        profile_from_layers(folder, name="bad")
    assert "\n" not in str(refused.value)


def test_a_single_batch_size_is_refused(tmp_path: Path) -> None:
    folder = write_layer_folder(tmp_path / "p")
    path = folder / "attention.csv"
    lines = path.read_text().splitlines()
    kept = [line for line in lines if line.split(",")[2] in ("n_decode", "0", "8")]
    path.write_text("\n".join(kept))
    with pytest.raises(InputError, match="n_decode has a single size"):
        profile_from_layers(folder, name="bad")


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = write_layer_folder(tmp_path / "p")
    (folder / "attention.csv").unlink()
    with pytest.raises(InputError, match=r"attention\.csv: is missing"):
        profile_from_layers(folder, name="bad")
    with pytest.raises(InputError, match="is not a folder"):
        profile_from_layers(tmp_path / "none", name="bad")


@pytest.mark.parametrize("gpu", ["RTX4090", "RTXPRO6000"])
def test_published_layer_profiles_fit(shared_dir: Path, gpu: str) -> None:
    folder = shared_dir / "measured" / f"{gpu}__Llama-3.1-8B" / "layer_profile"
    profile = profile_from_layers(folder, name=gpu)
    assert profile.fit_error is not None
    assert profile.fit_error.by_region["decode"].p95 < 0.05
    assert profile.fit_error.unseen.median < 0.08
    # reading the cache takes no less than the GPU's bandwidth allows (data sheets)
    peak_bytes_per_s = {"RTX4090": 1.008e12, "RTXPRO6000": 1.792e12}[gpu]
    read = profile.kv_bytes_per_token() / profile.step_cost.per_decode_kv_token_s
    assert 0.6 * peak_bytes_per_s < read < 1.0 * peak_bytes_per_s
