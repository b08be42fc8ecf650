"""The profile: everything fleetsim knows in seconds and bytes about one way to serve a model.

A profile belongs to one model, precision, GPU and tensor-parallel size. It is a JSON file that
says where each number comes from; ``docs/calibration.md`` explains the numbers.
"""

import json
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field, model_validator

from fleetsim.calibration.memory import (
    KV_DTYPE_BYTES,
    EngineSettings,
    kv_blocks,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
)
from fleetsim.calibration.overheads import ApiServer, HostWorkRecord, host_work_for
from fleetsim.calibration.parameters import SchedulingMode, StepCostParameters
from fleetsim.calibration.section import Bytes, Count, Section, Share
from fleetsim.calibration.start_up import StartUp
from fleetsim.calibration.uncertainty import Uncertainty

FORMAT_VERSION = 2


class Model(Section):
    """The architecture, as far as sizes depend on it."""

    name: str
    hf_id: str
    num_layers: Count
    num_kv_heads: Count
    head_dim: Count
    vocab_size: Count
    weights_bytes: Bytes
    """All weights in this profile's precision, before they are divided over GPUs."""
    max_context_tokens: Count
    """vLLM's default ``max_model_len``: prompt and output together."""


class Gpu(Section):
    """One GPU. The price is a placeholder to edit: what a GPU-hour costs *you*."""

    name: str
    hbm_bytes: Count
    """Memory that CUDA reports, which is less than the data sheet says."""
    hbm_source: str
    usd_per_hour: Annotated[float, Field(ge=0)]
    usd_per_hour_source: str


class Shard(Section):
    """What one GPU holds when the model is divided over ``tensor_parallel_size`` of them."""

    tensor_parallel_size: Count
    weights_bytes: Bytes
    activation_bytes_per_token: Bytes
    communication_bytes: Bytes


class Memory(Section):
    """GPU memory that is not KV cache."""

    shards: tuple[Shard, ...] = Field(min_length=1)
    cuda_graph_bytes: Bytes
    runtime_bytes: Bytes
    source: str

    def shard(self, tensor_parallel_size: int) -> Shard | None:
        """The sizes at one tensor-parallel size, or None where the profile has none."""
        return next(
            (s for s in self.shards if s.tensor_parallel_size == tensor_parallel_size), None
        )


class Provenance(Section):
    """Where the numbers come from. The versions differ, so each is named."""

    source_package: str
    source_version: str
    kernel_tables: str
    """The engine whose kernels or steps were measured, and where."""
    scheduler: str
    """The engine whose scheduler is simulated."""
    overheads: str
    """The engines on which host work and the API server were seen."""
    validation_runs: str
    """The engines of the runs that the whole was held against."""
    fitted_by: str
    seed: int
    remarks: tuple[str, ...] = ()


class RegionError(Section):
    """Relative error of the fitted price against the source's, over one kind of batch."""

    batches: Count
    median: Share
    p95: Share
    worst: Share


class FitError(Section):
    """Errors on batches that the fit did not see, all together and by kind of step."""

    fitted_batches: Count
    unseen: RegionError
    by_region: dict[str, RegionError]


class Validity(Section):
    """The largest steps that the fit covers; a larger one is an extrapolation."""

    max_decodes: Count
    max_step_tokens: Count
    max_context_tokens: Count
    max_kv_tokens: Count


class Profile(Section):
    """One (model, precision, GPU, tensor-parallel size): seconds, bytes, price, provenance."""

    format_version: int = FORMAT_VERSION
    name: str
    model: Model
    gpu: Gpu
    gpus_per_replica: Count
    precision: str
    kv_cache_dtype: str
    engine_name: str
    engine_defaults: EngineSettings
    step_cost: StepCostParameters
    host_work: tuple[HostWorkRecord, ...]
    """At least one record of each scheduling mode; perhaps several, of different engines."""
    api_server: ApiServer
    memory: Memory
    start_up: StartUp | None
    """None where nobody has measured it."""
    provenance: Provenance
    fit_error: FitError | None
    """None for a profile whose step cost is stated, not fitted."""
    validity: Validity | None
    uncertainty: Uncertainty | None
    """None where no run tells how far off the profile is."""

    @model_validator(mode="after")
    def _check_parts_agree(self) -> Self:
        if self.format_version != FORMAT_VERSION:
            raise ValueError(
                f"format_version is {self.format_version}; this fleetsim reads {FORMAT_VERSION}"
            )
        if self.kv_cache_dtype not in KV_DTYPE_BYTES:
            raise ValueError(f"kv_cache_dtype must be one of {', '.join(KV_DTYPE_BYTES)}")
        if missing := {"async", "sync"} - {record.mode for record in self.host_work}:
            raise ValueError(f"host_work lacks {', '.join(sorted(missing))}")
        if self.engine_defaults.tensor_parallel_size != self.gpus_per_replica:
            raise ValueError("engine_defaults.tensor_parallel_size must equal gpus_per_replica")
        return self

    def engine_settings(self, **flags: object) -> EngineSettings:
        """The engine's defaults on this GPU, with the given flags in their place."""
        return replace(self.engine_defaults, **flags)  # type: ignore[arg-type]

    def host_work_for(
        self, mode: SchedulingMode, engine_version: str | None = None
    ) -> HostWorkRecord:
        """Host work of a mode, of the engine nearest to a version.

        See :func:`fleetsim.calibration.overheads.host_work_for`.
        """
        return host_work_for(self.host_work, mode, engine_version)

    def kv_blocks(self, settings: EngineSettings | None = None) -> int:
        """KV blocks of one replica; see :func:`fleetsim.calibration.memory.kv_blocks`."""
        return kv_blocks(self, settings or self.engine_defaults)

    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of one token over the whole replica, in the profile's KV dtype."""
        model = self.model
        return kv_bytes_per_token(
            model.num_layers,
            model.num_kv_heads,
            model.head_dim,
            KV_DTYPE_BYTES[self.kv_cache_dtype],
        )

    def kv_bytes_per_token_per_gpu(self, tensor_parallel_size: int | None = None) -> int:
        """Bytes of K and V of one token on each GPU, in the profile's KV dtype."""
        return kv_bytes_per_token_per_gpu(self, tensor_parallel_size or self.gpus_per_replica)

    def usd_per_hour(self) -> float:
        """Price of one replica: its GPUs, all hours alike."""
        return self.gpus_per_replica * self.gpu.usd_per_hour

    def to_json(self) -> str:
        """The profile's file, byte for byte the same for equal profiles."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
