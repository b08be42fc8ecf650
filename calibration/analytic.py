"""Profiles that are stated instead of measured, for tests and for closed forms of queueing."""

from fleetsim.calibration.memory import EngineSettings
from fleetsim.calibration.overheads import ApiServer, HostWorkRecord
from fleetsim.calibration.parameters import HostWork, SchedulingMode, StepCostParameters
from fleetsim.calibration.profile import (
    Gpu,
    Memory,
    Model,
    Profile,
    Provenance,
    Shard,
    Validity,
)
from fleetsim.calibration.uncertainty import Uncertainty

_STATED = "stated, not measured"


def analytic_profile(
    step_cost: StepCostParameters,
    *,
    name: str = "analytic",
    num_gpu_blocks: int = 100_000,
    max_context_tokens: int = 1_000_000,
    host: HostWork | None = None,
    api_latency_s: float = 0.0,
    api_per_request_s: float = 0.0,
    api_per_prompt_token_s: float = 0.0,
    api_per_chunk_s: float = 0.0,
    usd_per_hour: float = 1.0,
    validity: Validity | None = None,
    uncertainty: Uncertainty | None = None,
) -> Profile:
    """A profile with the given step cost and KV blocks, on a GPU that holds nothing else.

    ``StepCostParameters(constant_s=0.02)`` gives steps of equal length; with
    ``StepCostParameters(token_slopes_s=(1e-3,))`` and room for whole prompts in one step, the
    service time of a request is its prompt length times 1 ms, so that a replica with
    ``max_num_seqs`` 1 is an M/G/1 queue and, with exponential lengths, an M/M/1 queue.
    """
    modes: tuple[SchedulingMode, ...] = ("async", "sync")
    host_work = tuple(
        HostWorkRecord(mode=mode, engine_version="any", work=host or HostWork(), source=_STATED)
        for mode in modes
    )
    return Profile(
        name=name,
        model=Model(
            name="none",
            hf_id="none",
            num_layers=1,
            num_kv_heads=1,
            head_dim=1,
            vocab_size=1,
            weights_bytes=0,
            max_context_tokens=max_context_tokens,
        ),
        gpu=Gpu(
            name="none",
            hbm_bytes=10**12,
            hbm_source=_STATED,
            usd_per_hour=usd_per_hour,
            usd_per_hour_source=_STATED,
        ),
        gpus_per_replica=1,
        precision="none",
        kv_cache_dtype="bfloat16",
        engine_name="none",
        engine_defaults=EngineSettings(num_gpu_blocks_override=num_gpu_blocks),
        step_cost=step_cost,
        host_work=host_work,
        api_server=ApiServer(
            api_server_count=1,
            latency_s=api_latency_s,
            per_request_s=api_per_request_s,
            per_prompt_token_s=api_per_prompt_token_s,
            per_chunk_s=api_per_chunk_s,
            engine_version="any",
            source=_STATED,
        ),
        memory=Memory(
            shards=(
                Shard(
                    tensor_parallel_size=1,
                    weights_bytes=0,
                    activation_bytes_per_token=0,
                    communication_bytes=0,
                ),
            ),
            cuda_graph_bytes=0,
            runtime_bytes=0,
            source=_STATED,
        ),
        provenance=Provenance(
            source_package="none",
            source_version="none",
            kernel_tables="none",
            scheduler="vLLM 0.32",
            overheads="none",
            validation_runs="none",
            fitted_by=_STATED,
            seed=0,
        ),
        start_up=None,
        fit_error=None,
        validity=validity,
        uncertainty=uncertainty,
    )
