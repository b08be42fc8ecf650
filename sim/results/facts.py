"""What the simulator hands to the results beside the journeys: plain records, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan

from fleetsim.sim.results.histogram import LogHistogram


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """One replica's life and work; a row of `replicas.parquet`.

    Attributes:
        pool, replica: the pool's name, and the replica's stable number in it.
        gpus: GPUs that it holds (the tensor parallel size).
        requested_s, ready_s, stopped_s: when it was asked for, became ready and released its
            GPUs; NaN for what did not happen.
        usd_per_gpu_hour: price, NaN when none is stated.
        max_num_seqs, max_num_batched_tokens, num_gpu_blocks: vLLM's limits as configured.
        steps: engine steps run; scheduled_tokens: tokens (prompt and output) scheduled in them.
        busy_s: seconds during which a step was running.
        kv_usage_integral_s: time integral of the share of KV blocks in use, while ready.
        kv_usage_max: largest share of KV blocks in use that a sample saw, 0 to 1.
    """

    pool: str
    replica: int
    gpus: int
    requested_s: float
    ready_s: float
    max_num_seqs: int
    max_num_batched_tokens: int
    num_gpu_blocks: int
    steps: int
    scheduled_tokens: int
    busy_s: float
    kv_usage_integral_s: float
    kv_usage_max: float
    stopped_s: float = nan
    usd_per_gpu_hour: float = nan


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """What the gateway metered for a tenant; a row of `usage.parquet`."""

    tenant: str
    requests: int
    rejected: int
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class OutsideFit:
    """What of a pool's work its profile does not cover: its seconds are an extrapolation.

    Attributes:
        steps: engine steps of more decodes, tokens or KV tokens than the profile was fitted to.
        share_of_steps: of all steps.
        requests_too_long: requests of a longer context than the profile was fitted to.
        requests_at_saturated_api_server: requests that came when streamed chunks alone took all
            of the API server, so that their time in it is a lower bound.
    """

    steps: int = 0
    share_of_steps: float = 0.0
    requests_too_long: int = 0
    requests_at_saturated_api_server: int = 0


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool over the whole run.

    Attributes:
        name, model, profile, engine: names; profile is the calibration profile, engine the
            engine and version that it stands for, such as "vLLM 0.24.0".
        requests_integral_s: time integral of the number of requests in the pool (dispatched to
            a replica, and not yet out of its engine), kept apart from the journeys.
        itl: gaps between tokens at the engine, over the whole run.
        slow_paths: how often the engines left the fast path, by name.
        outside_fit: what of the run the profile's fit does not cover, counted.
        slo_capacity_per_s: highest offered rate at which the SLO holds, None while unknown.
    """

    name: str
    model: str
    profile: str
    engine: str
    requests_integral_s: float
    itl: LogHistogram
    slow_paths: Mapping[str, int] = field(default_factory=dict)
    outside_fit: OutsideFit = OutsideFit()
    slo_capacity_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the run was made from: enough to say whether two results are of the same thing.

    Attributes:
        scenario, trace: names; trace_synthetic says whether the trace was made and not recorded.
        transforms: what was done to the trace, one line each, such as "time_scale 4".
        seed: the run's one seed.
        versions: version by name, such as fleetsim, python, numpy.
        hashes: SHA-256 of scenario, trace and profiles, by name.
        notes: what a reader must know to read the numbers, one line each.
    """

    scenario: str
    trace: str
    trace_synthetic: bool
    seed: int
    transforms: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as a whole.

    Attributes:
        window_start_s, window_end_s: the measurement window; a request belongs to it if it
            arrived in [start, end].
        end_s: when the run ended: the last request's end, or the horizon.
        arrived: requests that the client issued, by tenant, counted apart from the journeys.
        turns_not_issued: turns of sessions that were never sent, by reason; they have not arrived.
            None where no request waits for another's answer.
    """

    provenance: Provenance
    window_start_s: float
    window_end_s: float
    end_s: float
    arrived: Mapping[str, int]
    pools: tuple[PoolFacts, ...]
    replicas: tuple[ReplicaRecord, ...]
    usage: tuple[TenantUsage, ...] = ()
    turns_not_issued: Mapping[str, int] | None = None
