"""Weights counted from configurations, against what is published of the models."""

import importlib.util

import pytest

from fleetsim.calibration.hf_config import model_config
from fleetsim.calibration.weights import weights_bytes

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core, which has the configurations, is not installed (extra: aic)",
)

PARAMETERS = {  # as counted from the published checkpoints
    "meta-llama/Meta-Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Meta-Llama-3.1-70B": 70_553_706_496,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
}


@pytest.mark.parametrize("model", PARAMETERS)
def test_bf16_weights_are_two_bytes_a_parameter(model: str) -> None:
    assert weights_bytes(model_config(model), 1, None) == 2 * PARAMETERS[model]


def test_fp8_halves_all_but_embeddings_and_norms() -> None:
    config = model_config("meta-llama/Meta-Llama-3.1-70B")
    kept = 2 * (2 * config["vocab_size"] * 8192 + (2 * 80 + 1) * 8192)
    whole, halved = (weights_bytes(config, 1, dtype) for dtype in (None, "fp8"))
    assert halved == (whole - kept) / 2 + kept


def test_block_scales_take_four_bytes_for_128_x_128_weights() -> None:
    plain = weights_bytes(model_config("Qwen/Qwen3-32B"), 1, "fp8")
    blocks = weights_bytes(model_config("Qwen/Qwen3-32B-FP8"), 1, None)
    quantised = 2 * PARAMETERS["Qwen/Qwen3-32B"] - plain  # a byte saved on each weight
    assert blocks - plain == quantised * 4 / 128**2


def test_gpt_oss_is_padded_as_vllm_logs_it() -> None:
    gib = weights_bytes(model_config("openai/gpt-oss-120b"), 1, None) / 2**30
    assert gib == pytest.approx(64.38, rel=0.005)  # vLLM 0.14.1 on one H100, its issue 33155


def test_deepseek_has_671_billion_parameters_and_three_layers_without_experts() -> None:
    config = model_config("deepseek-ai/DeepSeek-V3")
    bf16 = {**config, "quantization_config": None}
    absorbed = 61 * 2 * 128 * 256 * 512
    router_biases = 58 * 256  # four bytes each
    counted = weights_bytes(bf16, 1, None) - absorbed - 4 * router_biases
    assert counted / 2 + router_biases == 671_026_419_200
    assert weights_bytes(config, 8, None) == pytest.approx(85.4e9, rel=1e-3)


@pytest.mark.parametrize("model", [*PARAMETERS, "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b"])
def test_weights_are_divided_over_gpus(model: str) -> None:
    config = model_config(model)
    sizes = [weights_bytes(config, tp, None) * tp for tp in (1, 2, 4, 8)]
    assert sizes == sorted(sizes)  # what each GPU has whole is counted again
    assert sizes[-1] < 1.07 * sizes[0]
