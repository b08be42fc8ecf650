"""`fleetsim calibrate from-aic`: what is refused before any table is read, and what comes out."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetsim.calibration import load_profile
from fleetsim.calibration.aic import AicPrices
from fleetsim.calibration.batches import StepBatch
from fleetsim.calibration.from_aic import profile_from_aic, without_idle_knots
from fleetsim.calibration.parameters import StepCostParameters
from fleetsim.calibration.profile import Profile
from fleetsim.cli import main
from fleetsim.traces.errors import InputError

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
        ({"kv_cache_dtype": "int8"}, "--kv-cache-dtype int8: is not known; give auto or fp8"),
        ({"fp8_rows": "even"}, "--fp8-rows even: is not known; give raw or aligned"),
    ],
)
def test_what_has_no_tables_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make("Qwen/Qwen3-8B", **changes)


def folder_with(tmp_path: Path, **changes: Any) -> str:
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_hidden_layers": 48,
        "num_attention_heads": 36,
        "hidden_size": 4608,
        "intermediate_size": 12288,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        **changes,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
EXPERTS = {"num_experts": 8, "moe_intermediate_size": 768}


@needs_tables
@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"tensor_parallel_size": 8}, "36 attention heads cannot be divided over 8 GPUs"),
        (
            {**EXPERTS, "quantization_config": FP8},
            {"tensor_parallel_size": 4},
            "experts of 768 x 4608 in blocks of 128 cannot be divided over 4 GPUs",
        ),
        (EXPERTS, {"dtype": "fp8"}, "name a checkpoint that is in fp8"),
        ({}, {"fp8_rows": "aligned"}, "--fp8-rows aligned is for weights in fp8; these are bf16"),
        ({"hidden_size": None}, {}, "hidden_size is None in its config.json"),
    ],
)
def test_models_that_cannot_be_served_so_are_refused(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(folder_with(tmp_path, **changes), **options)


def test_a_knot_that_changes_nothing_is_left_out() -> None:
    cost = StepCostParameters(token_knots=(0, 8, 16, 32), token_slopes_s=(0.0, 0.0, 2e-3, 2e-3))
    kept = without_idle_knots(cost)
    assert (kept.token_knots, kept.token_slopes_s) == ((0, 16), (0.0, 2e-3))


class Package:
    """Stands for the package's prices: milliseconds from a function of the scheduled requests."""

    def __init__(self, milliseconds: Any) -> None:
        self.milliseconds = milliseconds

    def estimate_forward_pass_time_ms(self, metrics: dict[str, Any]) -> float:
        return float(self.milliseconds(**metrics["scheduled_requests"]))


def prices(latent: bool, milliseconds: Any) -> AicPrices:
    made = AicPrices.__new__(AicPrices)
    made.has_latent_attention = latent
    made._prices = Package(milliseconds)
    return made


def test_a_chunk_behind_a_context_is_no_cheaper_than_without() -> None:
    cheaper = prices(False, lambda sum_prefill_kv_tokens, **_: 10 - sum_prefill_kv_tokens / 1000)
    dearer = prices(False, lambda sum_prefill_kv_tokens, **_: 10 + sum_prefill_kv_tokens / 1000)
    batch = StepBatch(0, 0, 1, 64, 8000)
    assert cheaper.price_s([batch])[0] == pytest.approx(10e-3)
    assert dearer.price_s([batch])[0] == pytest.approx(18e-3)


def test_mixed_steps_with_latent_attention_are_the_sum_of_their_parts() -> None:
    def package(
        num_prefill_requests: int,
        sum_prefill_tokens: int,
        sum_prefill_kv_tokens: int,
        num_decode_requests: int,
        sum_decode_kv_tokens: int,
    ) -> float:
        tokens = sum_prefill_tokens + num_decode_requests
        read = 0 if num_prefill_requests else 1e-3 * sum_decode_kv_tokens
        behind = 1e-4 * sum_prefill_kv_tokens
        if num_decode_requests:  # as the package does
            behind *= num_prefill_requests
        return 5 + 0.01 * tokens + read + behind

    batch = StepBatch(8, 8 * 1000, 4, 512, 3000)
    expected_ms = 5 + 0.01 * (4 * 512 + 8) + 1e-4 * 4 * 3000 + 1e-3 * (8000 - 8)
    assert prices(True, package).price_s([batch])[0] == pytest.approx(expected_ms * 1e-3)
    # other models have the package's own price
    assert prices(False, package).price_s([batch])[0] == pytest.approx(
        (5 + 0.01 * (4 * 512 + 8) + 1e-4 * 16 * 3000) * 1e-3
    )


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
    ("model", "changes"),
    [
        ("mistralai/Mixtral-8x22B-v0.1", {"gpu": "h200", "tensor_parallel_size": 4}),
        ("Qwen/Qwen3-32B", {"gpu": "h200", "tensor_parallel_size": 2, "kv_cache_dtype": "fp8"}),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", {"gpu": "h200", "tensor_parallel_size": 8}),
        ("MiniMaxAI/MiniMax-M2.5", {"gpu": "h200", "tensor_parallel_size": 4}),
    ],
)
def test_models_that_do_not_ship_are_priced_as_well(model: str, changes: dict[str, Any]) -> None:
    profile = make(model, **changes)
    assert profile.fit_error is not None
    assert profile.fit_error.unseen.median < 0.02
    assert profile.fit_error.unseen.p95 < 0.06
    assert profile.kv_blocks() > 1000


@pytest.mark.slow
@needs_tables
def test_a_kv_cache_in_fp8_has_twice_the_blocks_and_is_read_faster() -> None:
    bf16 = load_profile("qwen3-8b-bf16-tp1-h100")
    fp8 = make("Qwen/Qwen3-8B", kv_cache_dtype="fp8")
    assert fp8.kv_cache_dtype == "fp8"
    assert fp8.kv_blocks() // 2 == bf16.kv_blocks()
    assert fp8.step_cost.per_decode_kv_token_s < 0.75 * bf16.step_cost.per_decode_kv_token_s


def test_an_fp8_checkpoint_has_a_bf16_cache_like_any_other() -> None:
    """The package alone would price it with a cache in fp8."""
    checkpoint = load_profile("qwen3-32b-fp8-tp2-h200").step_cost
    bf16 = load_profile("qwen3-32b-bf16-tp2-h200").step_cost
    assert checkpoint.per_decode_kv_token_s == pytest.approx(bf16.per_decode_kv_token_s, rel=0.1)


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
        (["Qwen/Qwen3-15B"], "nearest known: Qwen/Qwen3-14B"),
        (["deepseek-ai/DeepSeek-V3", "--tp", "8"], "DeepSeek-V3: does not fit: weights take 85.4"),
        (["meta-llama/Meta-Llama-3.1-405B", "--tp", "4"], "128.2 GB more than"),
        (["Qwen/Qwen3-30B-A3B-FP8", "--tp", "4"], "cannot be divided over 4 GPUs"),
        (["deepseek-ai/DeepSeek-V3.2", "--tp", "8"], "architectures is ['DeepseekV32ForCausalLM']"),
        (["nvidia/Llama-3.1-70B-Instruct-FP8", "--tp", "4"], "quantised as modelopt"),
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
