"""What vLLM refuses at start-up is refused, by the flag's name."""

from __future__ import annotations

from typing import Any

import pytest

from fleetsim.sim.engine.settings import EngineSettings


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs: must be at least 1, got 0"),
        ({"block_size": -1}, "block_size: must be at least 1, got -1"),
        ({"max_model_len": 0}, "max_model_len: must be at least 1, got 0"),
        (
            {"max_num_batched_tokens": 100, "max_num_seqs": 200},
            r"max_num_batched_tokens \(100\) must be at least max_num_seqs \(200\)",
        ),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 4096},
            r"max_num_batched_tokens \(4096\) must be at least max_model_len \(131072\) when",
        ),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold: must be between 0"),
        ({"watermark": 1.0}, r"watermark: must be in \[0, 1\), got 1.0"),
        ({"scheduling_policy": "lifo"}, "scheduling_policy: must be fcfs or priority, got 'lifo'"),
        ({"max_loras": 0}, "max_loras: must be at least 1, got 0"),
        ({"engine_version": "0.19"}, "engine_version: must be one of 0.32, 0.33, got '0.19'"),
    ],
)
def test_refusals(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        EngineSettings(num_gpu_blocks=10_000, **flags)


def test_one_request_of_full_length_must_fit() -> None:
    EngineSettings(num_gpu_blocks=65, max_model_len=1024).check_kv_fits()
    with pytest.raises(
        ValueError, match=r"1024 needs 64 KV blocks .* only 63 fit; .* at most 1008"
    ):
        EngineSettings(num_gpu_blocks=64, max_model_len=1024).check_kv_fits()


def test_the_watermark_is_a_share_of_all_blocks_rounded_down() -> None:
    assert EngineSettings(num_gpu_blocks=199, watermark=0.1).watermark_blocks == 19
    assert EngineSettings(num_gpu_blocks=199).watermark_blocks == 0


def test_the_defaults_are_vllms_on_an_h100() -> None:
    settings = EngineSettings(num_gpu_blocks=2)
    assert (settings.max_num_seqs, settings.max_num_batched_tokens) == (1024, 8192)
    assert settings.block_size == 16
    assert settings.async_scheduling
    assert settings.enable_prefix_caching
    assert settings.enable_chunked_prefill
    assert settings.scheduler_reserve_full_isl
    assert settings.scheduling_policy == "fcfs"
    assert (settings.long_prefill_token_threshold, settings.watermark) == (0, 0.0)
