"""Sizes in bytes and blocks at every tensor-parallel size and under every flag."""

from pathlib import Path

import pytest

from fleetsim.calibration import EngineSettings, load_profile
from fleetsim.traces.errors import InputError

DOC = Path(__file__).parents[3] / "docs" / "calibration.md"
B8 = load_profile("llama-3.1-8b-bf16-tp1-h100")
B70 = load_profile("llama-3.1-70b-bf16-tp4-h100")
FP8 = load_profile("llama-3.1-70b-fp8-tp4-h100")
LATENT = load_profile("deepseek-v3-fp8-tp8-h200")


@pytest.mark.parametrize(
    ("profile", "whole", "per_gpu"),
    [
        (B8, 131_072, {1: 131_072, 2: 65_536, 4: 32_768, 8: 16_384}),
        (B70, 327_680, {1: 327_680, 2: 163_840, 4: 81_920, 8: 40_960}),
        # fp8 weights do not shrink the cache, which stays bfloat16
        (FP8, 327_680, {1: 327_680, 2: 163_840, 4: 81_920, 8: 40_960}),
        # latent attention: 512 + 64 numbers of 2 bytes in each of 61 layers, whole on each GPU
        (LATENT, 70_272, {1: 70_272, 2: 70_272, 4: 70_272, 8: 70_272}),
    ],
)
def test_kv_bytes_per_token_are_divided_over_gpus(profile, whole, per_gpu):
    assert profile.kv_bytes_per_token() == whole
    assert {tp: profile.kv_bytes_per_token_per_gpu(tp) for tp in per_gpu} == per_gpu
    assert profile.kv_bytes_per_token_per_gpu() == per_gpu[profile.gpus_per_replica]


def test_more_gpus_than_kv_heads_keep_a_head_each():
    assert B8.kv_bytes_per_token_per_gpu(16) == B8.kv_bytes_per_token_per_gpu(8)


def test_a_latent_vector_takes_half_the_bytes_in_fp8():
    fp8 = LATENT.kv_blocks(LATENT.engine_settings(kv_cache_dtype="fp8"))
    assert fp8 // 2 == LATENT.kv_blocks()
    assert LATENT.kv_blocks() * 16 > 600_000


@pytest.mark.parametrize(("profile", "total"), [(B8, 16.06e9), (B70, 141.1e9), (FP8, 72.65e9)])
def test_weights_are_divided_over_gpus(profile, total):
    assert profile.model.weights_bytes == pytest.approx(total, rel=1e-3)
    for shard in profile.memory.shards:
        held = shard.weights_bytes * shard.tensor_parallel_size
        assert held == pytest.approx(total, rel=0.03)
    assert [s.tensor_parallel_size for s in profile.memory.shards] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("flags", "factor"),
    [
        ({"gpu_memory_utilization": 0.80}, (0.7, 0.95)),
        ({"max_num_batched_tokens": 16384}, (0.98, 0.9999)),
        ({"max_num_seqs": 256}, (1.0001, 1.02)),
        ({"block_size": 32}, (0.4999, 0.5)),
        ({"kv_cache_dtype": "fp8"}, (2.0, 2.0001)),
        ({"tensor_parallel_size": 2}, (2.2, 3.0)),
        ({"num_gpu_blocks_override": 1000}, (0.01, 0.1)),
    ],
)
def test_every_flag_changes_the_blocks(flags, factor):
    ratio = B8.kv_blocks(B8.engine_settings(**flags)) / B8.kv_blocks()
    assert factor[0] <= ratio <= factor[1]


def test_blocks_fit_in_the_memory_they_are_taken_from():
    for name in ("llama-3.1-8b-bf16-tp1-h200", "llama-3.1-70b-fp8-tp4-h200", B8.name, B70.name):
        profile = load_profile(name)
        shard = profile.memory.shard(profile.gpus_per_replica)
        cache_bytes = profile.kv_blocks() * 16 * profile.kv_bytes_per_token_per_gpu()
        assert cache_bytes + shard.weights_bytes < 0.92 * profile.gpu.hbm_bytes


# Block counts that real vLLM logged on H100 80GB at gpu_memory_utilization 0.9, before it counted
# CUDA graphs; sizes of the models from their public configurations.
REAL_ENGINES = {
    "Llama-2-7B TP1": (7_463, 1, 32, 32, 128, 32_000, 13_476_831_232, 90_112, 0),
    "Qwen2.5-7B TP1": (65_352, 1, 28, 4, 128, 152_064, 15_231_233_024, 78_848, 0),
    "Yi-34B TP2": (20_793, 2, 60, 8, 128, 64_000, 34_388_917_248, 93_184, 358_612_992),
    "Llama-70B TP4": (30_425, 4, 80, 8, 128, 128_256, 35_276_193_792, 81_920, 411_041_792),
}


@pytest.mark.parametrize("name", REAL_ENGINES)
def test_block_counts_agree_with_real_engines(name):
    blocks, tp, layers, heads, dim, vocab, weights, activations, buffers = REAL_ENGINES[name]
    model = B8.model.model_copy(
        update={
            "num_layers": layers,
            "num_kv_heads": heads,
            "head_dim": dim,
            "vocab_size": vocab,
        }
    )
    shard = B8.memory.shards[0].model_copy(
        update={
            "tensor_parallel_size": tp,
            "weights_bytes": weights,
            "activation_bytes_per_token": activations,
            "communication_bytes": buffers,
        }
    )
    memory = B8.memory.model_copy(update={"shards": (shard,), "cuda_graph_bytes": 0})
    profile = B8.model_copy(update={"model": model, "memory": memory})
    settings = EngineSettings(
        gpu_memory_utilization=0.9,
        max_num_batched_tokens=2048,
        max_num_seqs=256,
        tensor_parallel_size=tp,
    )
    computed = profile.kv_blocks(settings)
    assert computed == pytest.approx(blocks, rel=0.01)
    assert f"| {name} | {blocks:,} | {computed:,} | {computed / blocks - 1:+.1%}" in (
        DOC.read_text().replace(" %", "%")
    )


def test_a_model_that_does_not_fit_is_refused_by_how_many_gb():
    with pytest.raises(InputError, match=r"does not fit: weights take 141\.1 GB") as refused:
        B70.kv_blocks(B70.engine_settings(tensor_parallel_size=1))
    assert "66.1 GB more than gpu_memory_utilization 0.92 x 85.0 GB" in str(refused.value)


def test_deepseek_fits_on_eight_h200_and_not_on_eight_h100():
    h100 = LATENT.model_copy(update={"gpu": B8.gpu})
    with pytest.raises(InputError, match=r"weights take 85\.4 GB .* 14\.2 GB more than"):
        h100.kv_blocks()
    with pytest.raises(InputError, match="does not fit"):
        LATENT.kv_blocks(LATENT.engine_settings(tensor_parallel_size=4))


def test_a_model_that_fits_only_with_more_of_the_memory_is_refused():
    with pytest.raises(InputError, match="does not fit"):
        B70.kv_blocks(B70.engine_settings(gpu_memory_utilization=0.4))
    # an override does not make room for the weights
    with pytest.raises(InputError, match="does not fit"):
        B70.kv_blocks(B70.engine_settings(tensor_parallel_size=1, num_gpu_blocks_override=5000))


def test_a_tensor_parallel_size_without_sizes_is_refused():
    with pytest.raises(InputError, match=r"tensor_parallel_size 3 has no sizes.*1, 2, 4, 8"):
        B70.kv_blocks(B70.engine_settings(tensor_parallel_size=3))


@pytest.mark.parametrize(
    "flags",
    [
        {"gpu_memory_utilization": 0.0},
        {"gpu_memory_utilization": 1.1},
        {"gpu_memory_utilization": float("nan")},
        {"max_num_batched_tokens": 0},
        {"max_num_seqs": 0},
        {"block_size": 0},
        {"kv_cache_dtype": "int4"},
        {"num_gpu_blocks_override": 0},
    ],
)
def test_flags_out_of_range_are_refused_by_name(flags):
    with pytest.raises(InputError, match=next(iter(flags))):
        EngineSettings(**flags)
