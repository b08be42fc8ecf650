"""A scenario's parts, built: trace, segments, pools, replicas."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import fleetsim

from fleetsim.calibration import Profile, load_profile
from fleetsim.policies import build as build_policy
from fleetsim.sim.clock import Clock
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.sim.fleet import Pool, make_knowledge
from fleetsim.sim.gateway import check_limits
from fleetsim.sim.randomness import Randomness
from fleetsim.sim.request import Journey
from fleetsim.sim.results.facts import Provenance
from fleetsim.sim.scenario import SAMPLE_TRACE, Scenario, resolved_yaml
from fleetsim.sim.scenario import Pool as PoolSettings
from fleetsim.sim.workload import Workload
from fleetsim.traces import (
    InputError,
    PrefixSegments,
    Trace,
    UniformLength,
    build_segments,
    load_sample,
    load_trace,
    synthesize,
)


@dataclass
class Parts:
    """What `build` makes of a scenario.

    Attributes:
        arrivals_end_s: when the last request of an open loop arrives; 0 for a closed one.
    """

    scenario: Scenario
    trace: Trace
    workload: Workload
    pools: list[Pool]
    default_pool: Pool
    arrivals_end_s: float

    def provenance(self) -> Provenance:
        """What the run was made from."""
        metadata = self.trace.metadata
        workload = self.scenario.workload
        name = metadata.source_path or metadata.source_name
        transforms = [_transform_line(t) for t in metadata.transforms]
        if workload.closed_loop is not None:
            transforms.append(f"closed loop, concurrency {workload.closed_loop.concurrency}")
        hashes = {
            "scenario": hashlib.sha256(resolved_yaml(self.scenario).encode()).hexdigest(),
            "trace": self.trace.content_hash(),
        }
        for pool in self.pools:
            text = pool.profile.to_json().encode()
            hashes[f"profile {pool.profile.name}"] = hashlib.sha256(text).hexdigest()
        return Provenance(
            scenario=self.scenario.name,
            trace=name,
            trace_synthetic=workload.synthetic is not None or workload.trace == SAMPLE_TRACE,
            seed=self.scenario.seed,
            transforms=tuple(transforms),
            versions={
                "fleetsim": fleetsim.__version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("numpy", "pandas", "pyarrow", "simpy")},
            },
            hashes=hashes,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> list[str]:
        notes = list(self.trace.metadata.warnings)
        workload = self.scenario.workload
        if workload.time_scale != 1.0:
            notes.append(
                f"time_scale {workload.time_scale:g} compresses time: turns overlap and reuse is "
                "denser than recorded"
            )
        if workload.closed_loop is not None:
            notes.append("a closed loop slows down with the fleet and cannot find its limit")
        if self.workload.truncated:
            notes.append(f"{self.workload.truncated} prompts were cut to fit the context")
        if self.workload.cut_outputs:
            notes.append(
                f"{self.workload.cut_outputs} outputs are shorter than recorded, because of "
                "max_tokens or the context length"
            )
        return notes


def build(
    scenario: Scenario,
    clock: Clock,
    completed: Callable[[Journey], None],
    leaps: bool,
) -> Parts:
    """Load, check and make everything that a run needs.

    Raises:
        InputError: whatever of it cannot be used, and why.
    """
    trace = _load(scenario)
    segments = build_segments(trace)
    pools: list[Pool] = []
    randomness = Randomness(scenario.seed)
    for name, settings in scenario.pools.items():
        pools.append(_pool(scenario, clock, name, settings, randomness, completed))
    number = 0
    for pool in pools:
        number = _add_replicas(scenario, pool, segments, number, leaps)
    default_pool = next(pool for pool in pools if pool.name == scenario.default_pool)
    contexts = {pool.model: pool.settings.max_model_len for pool in reversed(pools)}
    contexts[""] = default_pool.settings.max_model_len
    workload = Workload(trace, segments, scenario, lambda model: contexts.get(model, 0))
    open_loop = scenario.workload.closed_loop is None
    arrivals_end_s = float(trace.arrival_s[-1]) if open_loop else 0.0
    _check_window(scenario, arrivals_end_s, open_loop)
    if scenario.gateway.tenants:
        check_limits(scenario.gateway, scenario.origin.folder, _smallest_estimates(workload))
    return Parts(scenario, trace, workload, pools, default_pool, arrivals_end_s)


def _load(scenario: Scenario) -> Trace:
    workload = scenario.workload
    synthetic = workload.synthetic
    if synthetic is not None:
        arrivals = synthetic.arrivals
        ratio = synthetic.random_range_ratio
        return synthesize(
            requests=synthetic.requests,
            rate_rps=arrivals.rate_per_s if arrivals is not None else float("inf"),
            prompt_tokens=_length(synthetic.prompt_tokens, ratio),
            output_tokens=_length(synthetic.output_tokens, ratio),
            seed=scenario.seed,
            burstiness=arrivals.burstiness if arrivals is not None else 1.0,
        )
    path = scenario.trace_path()
    trace = load_sample() if path is None else load_trace(path, format=workload.format)
    if workload.head is not None:
        trace = trace.head(workload.head)
    if workload.time_scale != 1.0:
        trace = trace.time_scaled(workload.time_scale)
    return trace


def _length(tokens: int, ratio: float) -> int | UniformLength:
    return UniformLength.around(tokens, ratio) if ratio else tokens


def _pool(
    scenario: Scenario,
    clock: Clock,
    name: str,
    pool: PoolSettings,
    randomness: Randomness,
    completed: Callable[[Journey], None],
) -> Pool:
    where = f"pools.{name}"
    try:
        profile = load_profile(_profile_name(scenario, name, pool.profile))
        settings = engine_settings(profile, pool)
    except ValueError as error:
        raise InputError(f"{scenario.origin.source}: {where}: {error}") from None
    mode = "async" if settings.async_scheduling else "sync"
    cost = StepCost(profile.step_cost, profile.host_work[mode].work, mode)
    router, folder = scenario.router, scenario.origin.folder
    return Pool(
        clock,
        name,
        pool.model or profile.model.name,
        profile,
        settings,
        cost,
        build_policy(
            "routing", router.routing.policy, router.routing.params, "router.routing", folder
        ),
        build_policy(
            "admission",
            router.admission.policy,
            router.admission.params,
            "router.admission",
            folder,
        ),
        randomness.draws(f"routing/{name}"),
        completed,
    )


def _profile_name(scenario: Scenario, pool: str, profile: str) -> str:
    """A shipped profile's name stays; a path is relative to the scenario file."""
    if profile.endswith(".json"):
        return str(scenario.path(f"pools.{pool}.profile", profile))
    return profile


def engine_settings(profile: Profile, pool: PoolSettings) -> EngineSettings:
    """The pool's engine: its options, the profile's defaults for the rest, and the KV blocks.

    Raises:
        ValueError: what vLLM would refuse at start-up.
    """
    options = pool.engine
    defaults = profile.engine_defaults
    memory = profile.engine_settings(
        gpu_memory_utilization=options.gpu_memory_utilization,
        max_num_batched_tokens=options.max_num_batched_tokens or defaults.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs or defaults.max_num_seqs,
        block_size=options.block_size,
        kv_cache_dtype=options.kv_cache_dtype,
        **(
            {"num_gpu_blocks_override": options.num_gpu_blocks_override}
            if options.num_gpu_blocks_override is not None
            else {}
        ),
    )
    max_model_len = options.max_model_len or profile.model.max_context_tokens
    if max_model_len > profile.model.max_context_tokens:
        raise InputError(
            f"engine.max_model_len: {max_model_len} is above the model's "
            f"{profile.model.max_context_tokens} tokens"
        )
    settings = EngineSettings(
        num_gpu_blocks=profile.kv_blocks(memory),
        max_num_seqs=memory.max_num_seqs,
        max_num_batched_tokens=memory.max_num_batched_tokens,
        max_model_len=max_model_len,
        block_size=options.block_size,
        enable_prefix_caching=options.enable_prefix_caching,
        enable_chunked_prefill=options.enable_chunked_prefill,
        long_prefill_token_threshold=options.long_prefill_token_threshold,
        watermark=options.watermark,
        scheduler_reserve_full_isl=options.scheduler_reserve_full_isl,
        scheduling_policy=options.scheduling_policy,
        async_scheduling=options.async_scheduling,
    )
    settings.check_kv_fits()
    return settings


def _add_replicas(
    scenario: Scenario, pool: Pool, segments: PrefixSegments | None, number: int, leaps: bool
) -> int:
    size = pool.settings.block_size
    if segments is None:
        tokens: list[int] = []
        blocks: list[int] = []
    else:
        tokens = (segments.end_token - segments.start_token).tolist()
        blocks = (segments.end_token // size - segments.start_token // size).tolist()
    knowledge = scenario.router.prefix_knowledge
    make = make_knowledge(knowledge.source, knowledge.delay_s, pool, tokens, blocks)
    log = scenario.results.steps == "histogram"
    for _ in range(scenario.pools[pool.name].replicas):
        pool.add_replica(number, blocks, make, log, leaps)
        number += 1
    return number


def _check_window(scenario: Scenario, arrivals_end_s: float, open_loop: bool) -> None:
    measurement = scenario.measurement
    if not open_loop:
        return
    end_s = min(arrivals_end_s, measurement.horizon_s or arrivals_end_s)
    if end_s - measurement.cool_down_s < measurement.warm_up_s:
        raise InputError(
            f"{scenario.origin.source}: measurement: warm_up_s {measurement.warm_up_s:g} and "
            f"cool_down_s {measurement.cool_down_s:g} leave nothing of the {end_s:g} s of "
            "arrivals; make them shorter"
        )


def _smallest_estimates(workload: Workload) -> dict[str, int]:
    smallest: dict[str, int] = {}
    for journey in workload:
        request = journey.request
        estimate = request.prompt_tokens + request.max_tokens
        known = smallest.get(request.tenant, estimate)
        smallest[request.tenant] = min(known, estimate)
    workload.reset_counts()
    return smallest


def _transform_line(transform: dict[str, object]) -> str:
    rest = ", ".join(f"{key} {value}" for key, value in transform.items() if key != "name")
    return f"{transform.get('name', 'transform')}: {rest}" if rest else str(transform.get("name"))


