"""Profiles from the measured vLLM kernel tables of ``aiconfigurator-core``."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.calibration import aic, hf_config
from fleetsim.calibration.batches import draw_batches, priced
from fleetsim.calibration.fit import fit_steps, score_steps
from fleetsim.calibration.fp8_rows import FP8_ROWS, aligned_systems
from fleetsim.calibration.memory import EngineSettings
from fleetsim.calibration.parameters import StepCostParameters
from fleetsim.calibration.profile import Memory, Model, Profile, Provenance, Validity
from fleetsim.calibration.recipes import (
    API_SERVER,
    CUDA_GRAPH_BYTES,
    GPUS,
    HOST_WORK,
    MEMORY_SOURCE,
    OVERHEADS,
    RUNTIME_BYTES,
    SCHEDULER,
    START_UP,
    START_UP_FP8_EXPERTS,
    UNCERTAINTY,
    UNCERTAINTY_FP8_EXPERTS,
    VALIDATION_RUNS,
)
from fleetsim.calibration.remarks import remarks
from fleetsim.calibration.served import Served
from fleetsim.calibration.weights import weights_bytes
from fleetsim.traces.errors import InputError

SEED = 20240
FITTED_PER_REGION = 1200
UNSEEN_PER_REGION = 800

_JUMPS = (16, 32, 64, 128, 192, 256, 320, 384, 512, 640, 768, 896, 1024)
_LATER_JUMPS = (1280, 1536, 1792, 2048, 3072, 4096, 6144, 8192)
TABLE_KNOTS = tuple(
    sorted(
        {0, 2, 4, 8, 24, 48, 96, 160, 224, 448, 2560, 5120, 12288}
        | {knot for size in _JUMPS + _LATER_JUMPS for knot in (size, size + 1)}
    )
)
"""Knots of the price per token. There are pairs for jumps between tiles, as in
:data:`~fleetsim.calibration.fit.TOKEN_KNOTS`, and small ones for the experts that a step wakes."""

DTYPES = ("auto", "fp8")
KV_CACHE_DTYPES = ("auto", "fp8")


def profile_from_aic(
    model: str,
    *,
    gpu: str,
    tensor_parallel_size: int,
    dtype: str = "auto",
    kv_cache_dtype: str = "auto",
    fp8_rows: str = "raw",
    name: str,
) -> Profile:
    """Fit a profile of a model that the kernel tables cover.

    Args:
        model: a Hugging Face id that is known here, or a local folder with a ``config.json``;
            nothing is downloaded.
        gpu: ``h100`` or ``h200``.
        tensor_parallel_size: GPUs of a replica: 1, 2, 4 or 8.
        dtype: of the weights: ``auto`` for the checkpoint's own, or ``fp8`` to quantise a dense
            one, as ``vllm serve --quantization fp8`` does.
        kv_cache_dtype: ``auto`` for bfloat16, or ``fp8``, as ``vllm serve --kv-cache-dtype``.
        fp8_rows: ``raw`` for all measured fp8 multiplications, ``aligned`` to leave out those of
            sizes just above a multiple of 16; see :mod:`fleetsim.calibration.fp8_rows`.
        name: of the profile.

    Raises:
        InputError: the extra is not installed; the model, GPU or size is unknown; its
            configuration is wrong; the weights do not fit; or the tables do not cover it.
    """
    _one_of("--gpu", gpu, tuple(GPUS))
    _one_of("--dtype", dtype, DTYPES)
    _one_of("--kv-cache-dtype", kv_cache_dtype, KV_CACHE_DTYPES)
    _one_of("--fp8-rows", fp8_rows, FP8_ROWS)
    if tensor_parallel_size not in aic.TENSOR_PARALLEL_SIZES:
        sizes = ", ".join(map(str, aic.TENSOR_PARALLEL_SIZES))
        raise InputError(f"--tp {tensor_parallel_size}: has no tables; give one of {sizes}")
    aic.package_version()
    config = hf_config.model_config(model)
    hf_config.check_config(model, config)
    _check_it_can_be_divided(model, config, tensor_parallel_size)
    own = hf_config.precision(config)
    if dtype == "fp8" and (own != "bf16" or hf_config.is_mixture_of_experts(config)):
        raise InputError(
            f"{model}: --dtype fp8 is for dense models in bf16; name a checkpoint that is in fp8"
        )
    precision = own if dtype == "auto" else dtype
    if fp8_rows == "aligned" and precision != "fp8":
        raise InputError(
            f"{model}: --fp8-rows aligned is for weights in fp8; these are {precision}"
        )
    short_name = Path(model).resolve().name
    served = Served(
        slug=short_name.lower(),
        model_name=short_name,
        hf_id=model,
        precision=precision,
        gpu=gpu,
        tensor_parallel_size=tensor_parallel_size,
        weight_dtype="fp8" if dtype == "fp8" else None,
        kv_cache_dtype="bfloat16" if kv_cache_dtype == "auto" else kv_cache_dtype,
        fp8_rows=fp8_rows,
    )
    return fit_profile(served, name, "fleetsim calibrate from-aic")


def _check_it_can_be_divided(model: str, config: Mapping[str, Any], gpus: int) -> None:
    heads = config["num_attention_heads"]
    if heads % gpus:
        raise InputError(
            f"{model}: its {heads} attention heads cannot be divided over {gpus} GPUs; give "
            "another --tp"
        )
    inner = config.get("moe_intermediate_size") or config["intermediate_size"]
    block = hf_config.block_size(config)
    if hf_config.is_mixture_of_experts(config) and inner % (gpus * block):
        raise InputError(
            f"{model}: its experts of {inner} x {config['hidden_size']} in blocks of {block} "
            f"cannot be divided over {gpus} GPUs, nor does vLLM; give a smaller --tp"
        )


def _one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"{option} {value}: is not known; give {' or '.join(known)}")


def fit_profile(served: Served, name: str, fitted_by: str) -> Profile:
    """Fit a step cost on batches drawn from a seed, and score it on batches drawn after them.

    The same versions of the package and of this code give the same profile, to the bit.

    Raises:
        InputError: the weights do not fit, or the tables do not cover the model.
    """
    # The package warns of tables for other models' attention, which these do not use.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    system, gpu = GPUS[served.gpu]
    tp = served.tensor_parallel_size
    with ExitStack() as files:
        folder = files.enter_context(hf_config.model_folder(served.hf_id))
        aligned = served.fp8_rows == "aligned"
        prices = aic.AicPrices(
            folder,
            served.hf_id,
            system,
            tp,
            weight_dtype=served.weight_dtype,
            kv_cache_dtype=served.kv_cache_dtype,
            systems_folder=files.enter_context(aligned_systems(system)) if aligned else None,
        )
        has_fp8_experts = prices.is_moe and served.precision == "fp8"
        unfitted = Profile(
            name=name,
            model=_model(served, prices),
            gpu=gpu,
            gpus_per_replica=tp,
            precision=served.precision,
            kv_cache_dtype=served.kv_cache_dtype,
            engine_name="vllm",
            engine_defaults=EngineSettings(tensor_parallel_size=tp),
            step_cost=StepCostParameters(),
            host_work=HOST_WORK,
            api_server=API_SERVER,
            memory=Memory(
                shards=prices.shards(),
                cuda_graph_bytes=CUDA_GRAPH_BYTES,
                runtime_bytes=RUNTIME_BYTES,
                source=MEMORY_SOURCE,
            ),
            start_up=START_UP_FP8_EXPERTS if has_fp8_experts else START_UP,
            provenance=Provenance(
                source_package=aic.PACKAGE,
                source_version=aic.package_version(),
                kernel_tables=f"vLLM {aic.TABLES_VERSION} on {gpu.name}",
                scheduler=SCHEDULER,
                overheads=OVERHEADS,
                validation_runs=VALIDATION_RUNS,
                fitted_by=fitted_by,
                seed=SEED,
                remarks=remarks(served, prices.config),
            ),
            fit_error=None,
            validity=None,
            uncertainty=UNCERTAINTY_FP8_EXPERTS if has_fp8_experts else UNCERTAINTY,
        )
        # refuses what does not fit, by how many GB
        unfitted.model_copy(update={"name": served.hf_id}).kv_blocks()
        bounds = _bounds(unfitted)
        rng = np.random.default_rng(SEED)
        fitted = draw_batches(rng, FITTED_PER_REGION, bounds)
        unseen = draw_batches(rng, UNSEEN_PER_REGION, bounds)
        step_cost = fit_steps(priced(fitted, prices.price_s(fitted)), TABLE_KNOTS)
        step_cost = without_idle_knots(step_cost)
        error = score_steps(step_cost, len(fitted), priced(unseen, prices.price_s(unseen)))
    return unfitted.model_copy(
        update={"step_cost": step_cost, "fit_error": error, "validity": bounds}
    )


def _model(served: Served, prices: aic.AicPrices) -> Model:
    """The architecture, from the model's Hugging Face configuration."""
    config = prices.config
    latent = hf_config.has_latent_attention(config)
    is_folder = Path(served.hf_id).is_dir()
    return Model(
        name=served.model_name,
        # of a folder its name only: where it lies is nobody else's business
        hf_id=Path(served.hf_id).resolve().name if is_folder else served.hf_id,
        num_layers=config["num_hidden_layers"],
        num_kv_heads=1 if latent else hf_config.num_kv_heads(config),
        head_dim=(
            config["kv_lora_rank"] + config["qk_rope_head_dim"]
            if latent
            else hf_config.head_dim(config)
        ),
        latent_attention=latent,
        vocab_size=config["vocab_size"],
        weights_bytes=weights_bytes(config, 1, served.weight_dtype),
        max_context_tokens=config["max_position_embeddings"],
    )


def without_idle_knots(step_cost: StepCostParameters) -> StepCostParameters:
    """The same step cost, without knots at which the price per token does not change."""
    knots, slopes = step_cost.token_knots, step_cost.token_slopes_s
    kept = [j for j in range(len(knots)) if j == 0 or slopes[j] != slopes[j - 1]]
    return replace(
        step_cost,
        token_knots=tuple(knots[j] for j in kept),
        token_slopes_s=tuple(slopes[j] for j in kept),
    )


def _bounds(profile: Profile) -> Validity:
    """The largest steps to fit: twice vLLM's token budget, and KV in all memory but weights."""
    tp = profile.gpus_per_replica
    free_bytes = profile.gpu.hbm_bytes - profile.model.weights_bytes // tp
    return Validity(
        max_decodes=1024,
        max_step_tokens=16_384,
        max_context_tokens=profile.model.max_context_tokens,
        max_kv_tokens=free_bytes // profile.kv_bytes_per_token_per_gpu(),
    )
