"""`fleetsim calibrate from-aic`: what is refused before any table is read, and what comes out."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetsim.calibration import load_profile
from fleetsim.calibration.from_aic import (
    has_sliding_window,
    own_precision,
    profile_from_aic,
    refuse_other_kinds,
)
from fleetsim.calibration.profile import Profile
from fleetsim.cli import main
from fleetsim.traces.errors import InputError

DENSE = {
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "hidden_size": 4096,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}

needs_tables = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core is not installed (extra: aic)",
)


def make(model: str, **changes: Any) -> Profile:
    options = {"gpu": "h100", "tensor_parallel_size": 1, "dtype": "auto", "name": "p", **changes}
    return profile_from_aic(model, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu": "a100"}, "--gpu a100: is not known; give h100 or h200"),
        ({"tensor_parallel_size": 3}, "--tp 3: has no tables; give one of 1, 2, 4, 8"),
        ({"dtype": "int4"}, "--dtype int4: is not known; give auto or fp8"),
    ],
)
def test_what_has_no_tables_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make("Qwen/Qwen3-8B", **changes)


def test_other_kinds_of_models_are_refused() -> None:
    refuse_other_kinds("m", DENSE)
    with pytest.raises(InputError, match="latent attention"):
        refuse_other_kinds("m", {**DENSE, "kv_lora_rank": 512})
    for wrong in (None, 0, "36", True):
        with pytest.raises(InputError, match="m: num_hidden_layers is"):
            refuse_other_kinds("m", {**DENSE, "num_hidden_layers": wrong})


def test_what_a_configuration_says_of_weights_and_windows() -> None:
    assert own_precision(DENSE) == "bf16"
    assert own_precision({**DENSE, "quantization_config": {"quant_method": "fp8"}}) == "fp8"
    assert not has_sliding_window(DENSE)
    assert has_sliding_window({**DENSE, "sliding_window": 4096})
    assert not has_sliding_window({**DENSE, "sliding_window": 4096, "use_sliding_window": False})
    assert has_sliding_window({"layer_types": ["full_attention", "sliding_attention"]})
    assert not has_sliding_window({"layer_types": ["full_attention"], "sliding_window": 128})


def test_without_the_package_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    out = tmp_path / "p.json"
    code = main(["calibrate", "from-aic", "Qwen/Qwen3-8B", "--gpu", "h100", "--out", str(out)])
    assert code == 2
    assert "pip install 'fleetsim[aic]'" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
@needs_tables
@pytest.mark.parametrize(
    ("model", "changes", "p95"),
    [
        ("Qwen/Qwen3-8B", {}, 0.06),
        ("Qwen/Qwen3-30B-A3B", {}, 0.06),
        ("Qwen/Qwen3-30B-A3B-FP8", {"gpu": "h200", "tensor_parallel_size": 2}, 0.06),
        ("openai/gpt-oss-120b", {"tensor_parallel_size": 2}, 0.06),
        ("meta-llama/Meta-Llama-3.1-8B", {"dtype": "fp8"}, 0.13),
    ],
)
def test_it_prices_steps_as_the_tables_do(model: str, changes: dict[str, Any], p95: float) -> None:
    profile = make(model, **changes)
    assert profile.fit_error is not None
    assert profile.fit_error.unseen.median < 0.03
    assert profile.fit_error.unseen.p95 < p95
    assert profile.kv_blocks() > 1000
    windows = [remark for remark in profile.provenance.remarks if "scheduler approximate" in remark]
    assert len(windows) == ("gpt-oss" in model)


@pytest.mark.slow
@needs_tables
def test_a_folder_with_a_configuration_is_as_good_as_an_id(tmp_path: Path) -> None:
    from fleetsim.calibration import aic

    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(aic.model_config("Qwen/Qwen3-8B")))
    mine, known = make(str(folder)), make("Qwen/Qwen3-8B")
    assert mine.model.hf_id == "mine"
    assert mine.step_cost == known.step_cost
    assert mine.kv_blocks() == known.kv_blocks()
    path = tmp_path / "p.json"
    path.write_text(mine.to_json())
    assert load_profile(str(path)) == mine


@pytest.mark.slow
@needs_tables
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody/nothing"], "nobody/nothing: aiconfigurator-core has no configuration of it"),
        (["deepseek-ai/DeepSeek-V3", "--tp", "8"], "latent attention"),
        (["Qwen/Qwen3-30B-A3B", "--dtype", "fp8"], "name a checkpoint that is in fp8"),
        (["meta-llama/Meta-Llama-3.1-405B", "--tp", "4"], "leave no room in 340 GB"),
        (["Qwen/Qwen3-30B-A3B-FP8", "--tp", "4"], "at tensor_parallel_size 4: "),
    ],
)
def test_what_the_tables_cannot_price_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p.json"
    command = ["calibrate", "from-aic", *arguments, "--gpu", "h100", "--out", str(out)]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not out.exists()
