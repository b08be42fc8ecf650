"""A scenario's parts, built: trace, segments, pools, replicas."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version

import numpy as np

import fleetsim
from fleetsim.calibration import SchedulingMode
from fleetsim.policies import build as build_policy
from fleetsim.policies.limits import refuse_hopeless
from fleetsim.sim.calibration_draw import draw_factors
from fleetsim.sim.clock import Clock
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.sim.fleet import Pool, make_knowledge
from fleetsim.sim.gateway import limits_of
from fleetsim.sim.randomness import Randomness
from fleetsim.sim.request import Journey
from fleetsim.sim.results.facts import Provenance
from fleetsim.sim.scenario import (
    SAMPLE_TRACE,
    Scenario,
    engine_settings,
    pool_profile,
    resolved_yaml,
)
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
        has_sessions: some requests wait for the answer to another one.
        arrivals_end_s: when the last request of an open loop arrives; 0 where that depends on the
            fleet, in a closed loop or with sessions.
    """

    scenario: Scenario
    trace: Trace
    workload: Workload
    pools: list[Pool]
    default_pool: Pool
    has_sessions: bool
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
        draw = self.scenario.calibration_draw
        if draw is not None:
            for pool in self.pools:
                decode, prefill = draw_factors(pool.profile, draw)
                notes.append(
                    f"pool {pool.name}: calibration draw {draw}: decode steps take {decode:.3f} "
                    f"times what profile {pool.profile.name} says, steps with a prefill "
                    f"{prefill:.3f} times"
                )
        workload = self.scenario.workload
        notes += [
            f"time_scale {step['factor']:g} compresses time: turns overlap and reuse is denser "
            "than recorded"
            for step in self.trace.metadata.transforms
            if step.get("name") == "time_scale"
        ]
        if workload.closed_loop is not None:
            notes.append("a closed loop slows down with the fleet and cannot find its limit")
        if self.has_sessions:
            assert self.trace.think_s is not None
            turns = int(np.count_nonzero(~np.isnan(self.trace.think_s)))
            notes.append(
                f"{turns} of {len(self.trace)} requests wait for an answer and then think_s: they "
                "come later if the fleet is slower, so this load cannot find the fleet's limit"
            )
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
    has_sessions = trace.think_s is not None and not bool(np.isnan(trace.think_s).all())
    if has_sessions and scenario.workload.closed_loop is not None:
        raise InputError(
            f"{scenario.origin.source}: workload.closed_loop: the trace says itself which requests "
            "wait for which answers (think_s), and a fixed number in flight would send them too "
            "early; leave it out"
        )
    segments = build_segments(trace)
    pools: list[Pool] = []
    randomness = Randomness(scenario.seed)
    for name in scenario.pools:
        pools.append(_pool(scenario, clock, name, randomness, completed))
    number = 0
    for pool in pools:
        number = _add_replicas(scenario, pool, segments, number, leaps)
    default_pool = next(pool for pool in pools if pool.name == scenario.default_pool)
    contexts = {pool.model: pool.settings.max_model_len for pool in reversed(pools)}
    contexts[""] = default_pool.settings.max_model_len
    _check_models(scenario, trace, pools)
    _check_adapters(scenario, trace, pools, default_pool)
    workload = Workload(trace, segments, scenario, lambda model: contexts.get(model, 0))
    open_loop = scenario.workload.closed_loop is None and not has_sessions
    arrivals_end_s = float(trace.arrival_s[-1]) if open_loop else 0.0
    _check_window(scenario, arrivals_end_s, open_loop)
    if scenario.gateway.tenants:
        for tenant, estimate in _smallest_estimates(workload).items():
            limit, where = limits_of(scenario.gateway, tenant, scenario.origin.folder)
            refuse_hopeless(limit, estimate, f"{scenario.origin.source}: {where}")
    return Parts(scenario, trace, workload, pools, default_pool, has_sessions, arrivals_end_s)


def _load(scenario: Scenario) -> Trace:
    workload = scenario.workload
    trace = _source(scenario)
    if workload.head is not None:
        trace = trace.head(workload.head)
    if workload.time_scale != 1.0:
        trace = trace.time_scaled(workload.time_scale)
    for number, step in enumerate(workload.transforms):
        try:
            trace = step.apply(trace, scenario.seed)
        except InputError as error:
            where = f"{scenario.origin.source}: workload.transforms.{number}"
            raise InputError(f"{where}: {error}") from None
    return replace(trace, model=None) if workload.ignore_model else trace


def _source(scenario: Scenario) -> Trace:
    workload = scenario.workload
    synthetic = workload.synthetic
    if synthetic is None:
        path = scenario.trace_path()
        return load_sample() if path is None else load_trace(path, format=workload.format)
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


def _length(tokens: int, ratio: float) -> int | UniformLength:
    return UniformLength.around(tokens, ratio) if ratio else tokens


def _pool(
    scenario: Scenario,
    clock: Clock,
    name: str,
    randomness: Randomness,
    completed: Callable[[Journey], None],
) -> Pool:
    pool = scenario.pools[name]
    profile = pool_profile(scenario, name)
    settings = engine_settings(pool.engine, profile)
    mode: SchedulingMode = "async" if settings.async_scheduling else "sync"
    factors = (1.0, 1.0)
    if scenario.calibration_draw is not None:
        factors = draw_factors(profile, scenario.calibration_draw)
    cost = StepCost.from_profile(profile, mode, settings.engine_version, factors)
    router, folder = scenario.router, scenario.origin.folder
    routing, admission = router.routing, router.admission
    return Pool(
        clock,
        name,
        pool.model or profile.model.hf_id,
        profile,
        settings,
        cost,
        build_policy("routing", routing.policy, routing.params, "router.routing", folder),
        build_policy("admission", admission.policy, admission.params, "router.admission", folder),
        randomness.draws(f"routing/{name}"),
        completed,
        pool.engine.api_server_count,
    )


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


def _check_models(scenario: Scenario, trace: Trace, pools: list[Pool]) -> None:
    """A trace of other models only would be refused request by request; say so before the run."""
    if trace.model is None or bool((trace.model.codes < 0).any()):
        return
    served = [pool.model for pool in pools]
    if not set(trace.model.names) & set(served):
        names = ", ".join(repr(name) for name in trace.model.names[:3])
        more = f" and {len(trace.model.names) - 3} more" if len(trace.model.names) > 3 else ""
        raise InputError(
            f"{scenario.origin.source}: workload: the trace asks for {names}{more}, and no pool "
            f"serves that ({', '.join(served)} is served); set workload.ignore_model=true to send "
            "all to the default pool, or pools.NAME.model to the trace's name"
        )


def _check_adapters(
    scenario: Scenario, trace: Trace, pools: list[Pool], default_pool: Pool
) -> None:
    """vLLM without LoRA fails each request that names an adapter; say so once, before the run."""
    adapter = trace.adapter
    if adapter is None:
        return
    by_model = {pool.model: pool for pool in reversed(pools)}
    rows = np.flatnonzero(adapter.codes >= 0)
    models = np.zeros(len(trace)) if trace.model is None else trace.model.codes
    for row in rows[np.unique(models[rows], return_index=True)[1]].tolist():
        model = None if trace.model is None else trace.model[row]
        pool = by_model.get(model) if model else default_pool
        if pool is not None and pool.settings.max_loras is None:
            raise InputError(
                f"{scenario.origin.source}: pools.{pool.name}.engine.max_loras: must be given, as "
                f"the trace asks for LoRA adapters (such as {adapter[row]!r}); give how many may "
                "run at a time, 1 is vLLM's default"
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
    """Name and plain parameters; longer ones stay in the trace's own metadata."""
    plain = {
        key: value
        for key, value in transform.items()
        if key != "name" and isinstance(value, int | float) and not isinstance(value, bool)
    }
    return " ".join([str(transform.get("name")), *(f"{k}={v}" for k, v in plain.items())])
