"""Makes a profile from a layer profile: its step cost, and what else the model and GPU imply."""

import json
import re
from pathlib import Path

import numpy as np

from fleetsim.calibration.fit import score_steps, validity_of
from fleetsim.calibration.fit_layers import fit_layers
from fleetsim.calibration.layer_steps import layer_steps
from fleetsim.calibration.layer_tables import LayerTables, read_layer_tables
from fleetsim.calibration.library import list_profiles, load_profile
from fleetsim.calibration.memory import EngineSettings
from fleetsim.calibration.model_config import model_from_config
from fleetsim.calibration.profile import Gpu, Memory, Model, Profile, Provenance, Shard
from fleetsim.calibration.recipes import (
    API_SERVER,
    CUDA_GRAPH_BYTES,
    HOST_WORK,
    MEMORY_SOURCE,
    OVERHEADS,
    RUNTIME_BYTES,
    SCHEDULER,
    START_UP,
)
from fleetsim.traces.errors import InputError

_EVERY_NTH_UNSEEN = 4

GPU_MEMORY_BYTES = {
    "NVIDIA GeForce RTX 4090": (25_250_627_584, "total memory as CUDA reports it"),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (
        97_887 << 20,
        "total memory as nvidia-smi prints it; CUDA reports a little less",
    ),
}
"""Memory of GPUs that layer profiles are published for, where ``--gpu-memory-gib`` is not given."""


def profile_from_layers(
    folder: Path,
    *,
    name: str,
    model_config: Path | None = None,
    gpu_memory_gib: float | None = None,
    usd_per_hour: float = 1.0,
) -> Profile:
    """Fit a profile to the layer profile in ``folder``.

    A quarter of the measured attention shapes is kept from the fit and scores it.

    Args:
        folder: meta.yaml, dense.csv, attention.csv, per_sequence.csv, of one GPU.
        name: of the profile.
        model_config: the model's Hugging Face config.json; None for a model that a shipped
            profile is of.
        gpu_memory_gib: memory of the GPU; None for a GPU that is known here.
        usd_per_hour: price of the GPU, a placeholder to edit.

    Raises:
        InputError: see :func:`read_layer_tables`; or the model or GPU is unknown.
    """
    tables = read_layer_tables(folder)
    model, shard = _from_config(tables, model_config) if model_config else _known(tables)
    gpu = _gpu(tables, gpu_memory_gib, usd_per_hour)
    kv_bytes = 4 * model.num_layers * model.num_kv_heads * model.head_dim
    free_bytes = gpu.hbm_bytes - shard.weights_bytes
    if free_bytes < kv_bytes:
        raise InputError(
            f"{folder}: {model.name} takes {shard.weights_bytes / 2**30:.1f} GiB and does not fit "
            f"in {gpu.hbm_bytes / 2**30:.1f} GiB of {gpu.name}"
        )
    steps = layer_steps(tables, model.num_layers, free_bytes // kv_bytes)
    unseen = np.arange(len(steps)) % _EVERY_NTH_UNSEEN == 0
    step_cost = fit_layers(tables, model.num_layers, steps.take(~unseen))
    return Profile(
        name=name,
        model=model,
        gpu=gpu,
        gpus_per_replica=1,
        precision="bf16",
        kv_cache_dtype="bfloat16",
        engine_name="vllm",
        engine_defaults=EngineSettings(max_num_seqs=256, max_num_batched_tokens=2048),
        step_cost=step_cost,
        host_work=HOST_WORK,
        api_server=API_SERVER,
        memory=Memory(
            shards=(shard,),
            cuda_graph_bytes=CUDA_GRAPH_BYTES,
            runtime_bytes=RUNTIME_BYTES,
            source=MEMORY_SOURCE,
        ),
        start_up=START_UP,
        provenance=Provenance(
            source_package="layer profile (LLMServingSim's format)",
            source_version=tables.engine_version,
            kernel_tables=f"{tables.engine_version}, eager, on {tables.gpu}",
            scheduler=SCHEDULER,
            overheads=OVERHEADS,
            validation_runs="none yet",
            fitted_by="fleetsim calibrate from-layers",
            seed=0,
            remarks=(
                "one prefill chunk a step was measured; several are priced as their sum",
                "small steps are priced at the size to which vLLM's CUDA graphs pad them",
                "host work is that of other models on other GPUs",
            ),
        ),
        fit_error=score_steps(step_cost, int((~unseen).sum()), steps.take(unseen)),
        validity=validity_of(steps),
        uncertainty=None,
    )


def _known(tables: LayerTables) -> tuple[Model, Shard]:
    """The architecture from a shipped profile of the same model in bfloat16."""
    for name in list_profiles():
        profile = load_profile(name)
        if profile.precision == "bf16" and _plain(profile.model.hf_id) == _plain(tables.model):
            shard = profile.memory.shard(1)
            if shard is not None:
                return profile.model.model_copy(update={"hf_id": tables.model}), shard
    raise InputError(
        f"{tables.path}: model {tables.model!r} is not one that fleetsim knows; give its "
        "Hugging Face config.json with --model-config"
    )


def _plain(hf_id: str) -> str:
    """A model's name without its organisation, so that both names of Llama 3.1 are one."""
    return re.sub(r"^meta-", "", hf_id.rsplit("/", 1)[-1].lower())


def _from_config(tables: LayerTables, path: Path) -> tuple[Model, Shard]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: is not a JSON file: {error}") from error
    return model_from_config(str(path), tables.model, config)


def _gpu(tables: LayerTables, memory_gib: float | None, usd_per_hour: float) -> Gpu:
    if memory_gib is not None:
        if not 0 < memory_gib < 10_000:
            raise InputError(f"--gpu-memory-gib: must be a number of GiB, got {memory_gib:g}")
        hbm_bytes, source = int(memory_gib * 2**30), "given as --gpu-memory-gib"
    elif tables.gpu in GPU_MEMORY_BYTES:
        hbm_bytes, source = GPU_MEMORY_BYTES[tables.gpu]
    else:
        raise InputError(
            f"{tables.path}: the memory of GPU {tables.gpu!r} is not known; give --gpu-memory-gib"
        )
    if not 0 <= usd_per_hour < 1e6:
        raise InputError(f"--usd-per-hour: must be a price of at least 0, got {usd_per_hour:g}")
    return Gpu(
        name=tables.gpu,
        hbm_bytes=hbm_bytes,
        hbm_source=source,
        usd_per_hour=usd_per_hour,
        usd_per_hour_source="a placeholder; edit it to what you pay",
    )
