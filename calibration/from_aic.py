"""Profiles from the measured vLLM kernel tables of ``aiconfigurator-core``."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetsim.calibration import aic
from fleetsim.calibration.batches import draw_batches, priced
from fleetsim.calibration.fit import MOE_TOKEN_KNOTS, TOKEN_KNOTS, fit_steps, score_steps
from fleetsim.calibration.memory import EngineSettings
from fleetsim.calibration.profile import Gpu, Memory, Model, Profile, Provenance, Validity
from fleetsim.calibration.recipes import (
    API_SERVER,
    CUDA_GRAPH_BYTES,
    FP8_REMARK,
    GPUS,
    HOST_WORK,
    MEMORY_SOURCE,
    OVERHEADS,
    RUNTIME_BYTES,
    SCHEDULER,
    START_UP,
    START_UP_FP8_EXPERTS,
    Served,
)
from fleetsim.traces.errors import InputError

SEED = 20240
FITTED_PER_REGION = 1200
UNSEEN_PER_REGION = 800

DTYPES = ("auto", "fp8")

_WINDOW_REMARK = (
    "scheduler approximate: some layers look at a sliding window, for which vLLM keeps a KV cache "
    "group of its own, while the simulated engine has one group of full attention"
)


def profile_from_aic(
    model: str, *, gpu: str, tensor_parallel_size: int, dtype: str, name: str
) -> Profile:
    """Fit a profile of a model that the kernel tables cover.

    Args:
        model: a Hugging Face id that the package ships a configuration of, or a local folder
            with a ``config.json``; nothing is downloaded.
        gpu: ``h100`` or ``h200``.
        tensor_parallel_size: GPUs of a replica: 1, 2, 4 or 8.
        dtype: of the weights: ``auto`` for the checkpoint's own, or ``fp8`` to quantise a dense
            one, as ``vllm serve --quantization fp8`` does.
        name: of the profile.

    Raises:
        InputError: the extra is not installed; the model, GPU or size is unknown; the weights do
            not fit; or the model is of a kind whose step cost or KV cache has another form.
    """
    if gpu not in GPUS:
        raise InputError(f"--gpu {gpu}: is not known; give {' or '.join(GPUS)}")
    if tensor_parallel_size not in aic.TENSOR_PARALLEL_SIZES:
        sizes = ", ".join(map(str, aic.TENSOR_PARALLEL_SIZES))
        raise InputError(f"--tp {tensor_parallel_size}: has no tables; give one of {sizes}")
    if dtype not in DTYPES:
        raise InputError(f"--dtype {dtype}: is not known; give {' or '.join(DTYPES)}")
    config = aic.model_config(model)
    refuse_other_kinds(model, config)
    own = own_precision(config)
    if dtype == "fp8" and (own != "bf16" or aic.is_mixture_of_experts(config)):
        raise InputError(
            f"{model}: --dtype fp8 is for dense models in bf16; name a checkpoint that is in fp8"
        )
    precision = own if dtype == "auto" else dtype
    remarks = []
    if precision == "fp8":
        remarks.append(FP8_REMARK)
    if has_sliding_window(config):
        remarks.append(_WINDOW_REMARK)
    short_name = model.rstrip("/").rsplit("/", 1)[-1]
    served = Served(
        slug=short_name.lower(),
        model_name=short_name,
        hf_id=model,
        precision=precision,
        tensor_parallel_size=tensor_parallel_size,
        weight_dtype="fp8" if dtype == "fp8" else None,
        remarks=tuple(remarks),
    )
    return fit_profile(served, gpu, name, "fleetsim calibrate from-aic")


def refuse_other_kinds(model: str, config: Mapping[str, Any]) -> None:
    """Raise an InputError for a model whose steps or KV cache have another form than modelled."""
    if config.get("kv_lora_rank"):
        raise InputError(f"{model}: has latent attention (MLA), whose KV cache is not modelled")
    needed = (
        "num_hidden_layers",
        "num_attention_heads",
        "hidden_size",
        "vocab_size",
        "max_position_embeddings",
    )
    for key in needed:
        value = config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                f"{model}: {key} is {value!r} in its config.json; a text model has a count there"
            )


def own_precision(config: Mapping[str, Any]) -> str:
    """How the checkpoint's weights are kept, such as bf16, fp8 or mxfp4."""
    quantised: Mapping[str, Any] = config.get("quantization_config") or {}
    return str(quantised.get("quant_method", "bf16"))


def has_sliding_window(config: Mapping[str, Any]) -> bool:
    """Whether some layers attend to the last so many tokens only."""
    if "layer_types" in config:
        return "sliding_attention" in config["layer_types"]
    return bool(config.get("sliding_window")) and config.get("use_sliding_window", True)


def fit_profile(served: Served, gpu_key: str, name: str, fitted_by: str) -> Profile:
    """Fit a step cost on batches drawn from a seed, and score it on batches drawn after them.

    The same versions of the package and of this code give the same profile, to the bit.
    """
    # The package warns of tables for other models' attention, which these do not use.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    system, gpu = GPUS[gpu_key]
    tp = served.tensor_parallel_size
    prices = aic.AicPrices(served.hf_id, system, tp, served.weight_dtype)
    model = prices.model(served.model_name)
    _check_it_fits(gpu, model, tp)
    bounds = _bounds(gpu, model, tp)
    rng = np.random.default_rng(SEED)
    fitted = draw_batches(rng, FITTED_PER_REGION, bounds)
    unseen = draw_batches(rng, UNSEEN_PER_REGION, bounds)
    knots = MOE_TOKEN_KNOTS if prices.is_moe else TOKEN_KNOTS
    step_cost = fit_steps(priced(fitted, prices.price_s(fitted)), knots)
    return Profile(
        name=name,
        model=model,
        gpu=gpu,
        gpus_per_replica=tp,
        precision=served.precision,
        kv_cache_dtype="bfloat16",
        engine_name="vllm",
        engine_defaults=EngineSettings(tensor_parallel_size=tp),
        step_cost=step_cost,
        host_work=HOST_WORK,
        api_server=API_SERVER,
        memory=Memory(
            shards=prices.shards(),
            cuda_graph_bytes=CUDA_GRAPH_BYTES,
            runtime_bytes=RUNTIME_BYTES,
            source=MEMORY_SOURCE,
        ),
        start_up=START_UP_FP8_EXPERTS if prices.is_moe and served.precision == "fp8" else START_UP,
        provenance=Provenance(
            source_package=aic.PACKAGE,
            source_version=aic.package_version(),
            kernel_tables=f"vLLM {aic.TABLES_VERSION} on {gpu.name}",
            scheduler=SCHEDULER,
            overheads=OVERHEADS,
            validation_runs="none yet",
            fitted_by=fitted_by,
            seed=SEED,
            remarks=served.remarks,
        ),
        fit_error=score_steps(step_cost, len(fitted), priced(unseen, prices.price_s(unseen))),
        validity=bounds,
        uncertainty=None,
    )


def _bounds(gpu: Gpu, model: Model, tensor_parallel_size: int) -> Validity:
    """The largest steps to fit: twice vLLM's token budget, and KV in all memory but weights."""
    kv_bytes = 4 * model.num_layers * model.num_kv_heads * model.head_dim
    free_bytes = gpu.hbm_bytes * tensor_parallel_size - model.weights_bytes
    return Validity(
        max_decodes=1024,
        max_step_tokens=16_384,
        max_context_tokens=model.max_context_tokens,
        max_kv_tokens=free_bytes // kv_bytes,
    )


def _check_it_fits(gpu: Gpu, model: Model, tensor_parallel_size: int) -> None:
    memory_bytes = gpu.hbm_bytes * tensor_parallel_size
    if model.weights_bytes >= 0.9 * memory_bytes:
        raise InputError(
            f"{model.hf_id}: its weights take {model.weights_bytes / 1e9:.0f} GB and leave no room "
            f"in {memory_bytes / 1e9:.0f} GB of {tensor_parallel_size} x {gpu.name}; give a larger "
            "--tp, --gpu h200 or a checkpoint in fp8"
        )
