"""Makes a profile from recorded engine steps, or says why they do not suffice."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from fleetsim.calibration.fit import (
    TOKEN_KNOTS,
    fit_steps,
    fit_uncertainty,
    score_steps,
    validity_of,
)
from fleetsim.calibration.memory import KV_DTYPE_BYTES, EngineSettings
from fleetsim.calibration.model_config import model_from_config
from fleetsim.calibration.overheads import HostWorkRecord
from fleetsim.calibration.parameters import HostWork, SchedulingMode, StepCostParameters
from fleetsim.calibration.profile import Gpu, Memory, Model, Profile, Provenance
from fleetsim.calibration.recipes import (
    API_SERVER,
    CUDA_GRAPH_BYTES,
    MEMORY_SOURCE,
    RUNTIME_BYTES,
    SCHEDULER,
    START_UP,
)
from fleetsim.calibration.recording import Header
from fleetsim.calibration.step_file import read_step_files
from fleetsim.calibration.step_table import Mask, StepTable
from fleetsim.traces.errors import InputError

MIN_STEPS = 200
MIN_DECODE_STEPS = 50
MIN_PREFILL_STEPS = 20
MIN_BATCH_SIZES = 4
MIN_CHUNK_SIZES = 4
_MIN_SPREAD = 2.0
"""The largest batch, chunk and context must be at least so many times the smallest."""

_MIN_STEPS_PER_KNOT = 25
_BLOCK_STEPS = 25
_EVERY_NTH_BLOCK_UNSEEN = 4
"""Neighbouring steps are alike, so that a step kept from the fit says little; blocks do."""

SLOWEST_BYTES_PER_S = {"gpu": 2e10, "cpu": 5e7}
FASTEST_BYTES_PER_S = {"gpu": 2e13, "cpu": 2e12}
"""Of one device. A decode step reads all weights once, so its time bounds the memory's speed.
An H200 has 4.8e12; a CPU with a small model may be busy with anything but reading."""

LONGEST_GPU_STEP_S = 1.0
"""A typical decode step of any model on a GPU is shorter; a small model's bytes do not tell."""

_CONTAINED = "contained in the step cost: recorded steps last until their output is taken in"


@dataclass(frozen=True, slots=True, eq=False)
class StepFit:
    """A profile, and the steps that it was made from.

    Attributes:
        profile: the profile.
        steps: all recorded steps.
        unseen: which of them were kept from the fit.
    """

    profile: Profile
    steps: StepTable
    unseen: Mask


def fit_step_files(paths: list[Path], name: str, usd_per_hour: float = 1.0) -> StepFit:
    """Fit a profile to step files of one engine.

    Host work is part of a recorded step, so it is part of the step cost, and the profile's own
    is 0: it holds for the scheduling mode that was recorded.

    Raises:
        InputError: see :func:`read_step_files`; or the steps are too few, or too much alike for
            their costs to be told apart, or take times that no memory allows.
    """
    header, steps = read_step_files(paths)
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    _check_enough(where, steps)
    model_config = (header.model_extra or {}).get("model_config")
    model, shard = model_from_config(
        f"{where}: model_config", header.model, model_config, header.tensor_parallel_size
    )
    _check_seconds(where, header, model, steps)
    unseen = np.arange(len(steps)) // _BLOCK_STEPS % _EVERY_NTH_BLOCK_UNSEEN == 3
    fitted = steps.take(~unseen)
    step_cost = fit_steps(fitted, supported_knots(fitted), robust=True)
    _check_form(where, step_cost)
    host_work = tuple(
        HostWorkRecord(
            mode=mode,
            engine_version=f"vLLM {header.vllm_version}",
            work=HostWork(),
            source=_CONTAINED,
        )
        for mode in get_args(SchedulingMode)
    )
    profile = Profile(
        name=name,
        model=model,
        gpu=_gpu(where, header, usd_per_hour),
        gpus_per_replica=header.tensor_parallel_size,
        precision=header.quantization or header.dtype,
        kv_cache_dtype=_kv_dtype(header),
        engine_name="vllm",
        engine_defaults=EngineSettings(
            max_num_seqs=header.max_num_seqs,
            max_num_batched_tokens=header.max_num_batched_tokens,
            block_size=header.block_size,
            tensor_parallel_size=header.tensor_parallel_size,
            num_gpu_blocks_override=header.num_gpu_blocks,
        ),
        step_cost=step_cost,
        host_work=host_work,
        api_server=API_SERVER.model_copy(
            update={"source": f"not recorded; of other runs: {API_SERVER.source}"}
        ),
        memory=Memory(
            shards=(shard,),
            cuda_graph_bytes=CUDA_GRAPH_BYTES,
            runtime_bytes=RUNTIME_BYTES,
            source=f"{MEMORY_SOURCE}; the recorded engine's num_gpu_blocks goes before it",
        ),
        start_up=START_UP,
        provenance=Provenance(
            source_package="recorded engine steps",
            source_version=f"vLLM {header.vllm_version}",
            kernel_tables="none",
            scheduler=SCHEDULER,
            overheads=(
                f"host work: vLLM {header.vllm_version}; API server: {API_SERVER.engine_version}"
            ),
            validation_runs="none yet",
            fitted_by="fleetsim calibrate fit",
            seed=0,
            remarks=(f"recorded under {header.scheduling_mode} scheduling",),
        ),
        fit_error=score_steps(step_cost, len(fitted), steps.take(unseen)),
        validity=validity_of(steps),
        uncertainty=fit_uncertainty(step_cost, steps.take(unseen), _BLOCK_STEPS),
    )
    return StepFit(profile, steps, unseen)


def supported_knots(steps: StepTable) -> tuple[int, ...]:
    """Those token counts behind which enough steps lie to tell a slope of its own."""
    tokens = np.sort(steps.tokens)
    knots = [0]
    for knot in TOKEN_KNOTS[1:]:
        below, above = np.searchsorted(tokens, [knots[-1], knot], side="right")
        enough = _MIN_STEPS_PER_KNOT
        if above - below >= enough and len(tokens) - above >= enough:
            knots.append(knot)
    return tuple(knots)


def _check_enough(where: str, steps: StepTable) -> None:
    if len(steps) < MIN_STEPS:
        raise InputError(
            f"{where}: {len(steps)} steps are too few for a fit; record at least {MIN_STEPS}"
        )
    decodes, prefills = steps.n_decodes > 0, steps.n_prefills > 0
    for kind, members, least in (
        ("decodes", decodes, MIN_DECODE_STEPS),
        ("prefills", prefills, MIN_PREFILL_STEPS),
    ):
        if members.sum() < least:
            raise InputError(
                f"{where}: {int(members.sum())} steps with {kind} are too few for a fit; record "
                f"at least {least}"
            )
    each = steps.kv_tokens[decodes] / steps.n_decodes[decodes]
    for what, values, least in (
        ("decode batch size", steps.n_decodes[decodes], MIN_BATCH_SIZES),
        ("number of prefill tokens", steps.prefill_tokens[prefills], MIN_CHUNK_SIZES),
        ("context per decode", each, MIN_BATCH_SIZES),
    ):
        sizes = np.unique(values)
        low, high = (float(q) for q in np.percentile(values, [1, 99]))
        if len(sizes) < least or high < _MIN_SPREAD * max(low, 1.0):
            raise InputError(
                f"{where}: the {what} is {low:g} to {high:g} in nearly all steps; a cost per size "
                "cannot be told from that: record few and many requests at a time, short and long"
            )


def _check_seconds(where: str, header: Header, model: Model, steps: StepTable) -> None:
    alone = steps.region("decode")
    typical_s = float(np.median(steps.seconds[alone if alone.any() else steps.n_decodes > 0]))
    bytes_per_s = model.weights_bytes / header.tensor_parallel_size / typical_s
    kind = "cpu" if "cpu" in header.gpu.lower() else "gpu"
    slowest = SLOWEST_BYTES_PER_S[kind]
    if model.weights_bytes < 2e9:
        slowest = SLOWEST_BYTES_PER_S["cpu"]  # of a small model, a step is launches, not reading
    too_long = kind == "gpu" and typical_s > LONGEST_GPU_STEP_S
    if too_long or not slowest <= bytes_per_s <= FASTEST_BYTES_PER_S[kind]:
        raise InputError(
            f"{where}: a decode step takes {typical_s:.3g} s, in which {header.gpu} would read its "
            f"weights at {bytes_per_s / 1e9:,.3g} GB/s; scheduled_s and done_s must be in seconds"
        )


def _check_form(where: str, cost: StepCostParameters) -> None:
    if cost.constant_s + cost.decode_s + sum(cost.token_slopes_s) + cost.per_decode_s <= 0.0:
        raise InputError(f"{where}: the steps' times do not depend on what they compute")


def _kv_dtype(header: Header) -> str:
    dtype = header.dtype if header.kv_cache_dtype == "auto" else header.kv_cache_dtype
    return dtype if dtype in KV_DTYPE_BYTES else "bfloat16"


def _gpu(where: str, header: Header, usd_per_hour: float) -> Gpu:
    if not header.gpu_memory_bytes or header.gpu_memory_bytes < 0:
        raise InputError(f"{where}: gpu_memory_bytes is missing from the header; add it there")
    return Gpu(
        name=header.gpu,
        hbm_bytes=header.gpu_memory_bytes,
        hbm_source="total memory as vLLM's platform reports it",
        usd_per_hour=usd_per_hour,
        usd_per_hour_source="a placeholder; edit it to what you pay",
    )
