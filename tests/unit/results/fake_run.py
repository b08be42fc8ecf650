"""A seeded fake run: journeys and facts as the simulator would hand them, without the simulator."""

from __future__ import annotations

from collections import Counter
from math import nan
from pathlib import Path

import numpy as np

from fleetsim.sim.request import Journey, Request
from fleetsim.sim.results.facts import (
    PoolFacts,
    Provenance,
    ReplicaRecord,
    RunFacts,
    TenantUsage,
)
from fleetsim.sim.results.histogram import LogHistogram
from fleetsim.sim.results.recorder import Recorder

POOLS = ("chat", "code")


def fake_journeys(n: int, seed: int = 1, rate: float = 8.0) -> list[Journey]:
    """Journeys with a visible burst; about one in twenty does not complete."""
    rng = np.random.default_rng(seed)
    gaps_s = rng.exponential(1 / rate, n)
    gaps_s[n // 2 : n // 2 + n // 5] /= 3.0
    arrivals_s = np.cumsum(gaps_s)
    return [_journey(i, float(t), rng, n) for i, t in enumerate(arrivals_s)]


def _journey(i: int, arrival_s: float, rng: np.random.Generator, n: int) -> Journey:
    output_tokens = int(rng.geometric(1 / 150))
    request = Request(
        request_id=i,
        arrival_s=arrival_s,
        prompt_tokens=int(rng.lognormal(6.2, 1.0)) + 2,
        max_tokens=4096,
        tenant=f"team-{i % 3}",
        model="llama-3.1-8b",
        session=f"s{i // 4}" if i % 5 else None,
        source_row=i,
    )
    journey = Journey(request, output_tokens, capped=False, stops_at_length=False)
    burst = n // 2 <= i < n * 4 // 5
    journey.attempts = 1
    journey.arrived_s = arrival_s + 0.005
    draw = rng.random()
    if draw < 0.03:
        journey.outcome, journey.reason = "rejected", "rate_limit_tokens"
        journey.ended_s = journey.arrived_s + 0.005
        return journey
    journey.admitted_s = journey.arrived_s + 0.001
    journey.dispatched_s = journey.admitted_s
    journey.queued_s = journey.dispatched_s + 0.002
    journey.pool = POOLS[i % 4 == 0]
    journey.replica = int(rng.integers(2))
    journey.scheduled_s = journey.queued_s + float(rng.exponential(1.2 if burst else 0.05))
    journey.prefill_stall_s = 0.0
    journey.first_token_s = journey.scheduled_s + 0.02 + request.prompt_tokens * 2e-5
    journey.client_first_token_s = journey.first_token_s + 0.005
    journey.cached_tokens = request.prompt_tokens // 3
    if draw < 0.05:
        journey.outcome, journey.reason = "cancelled", "client_timeout"
        journey.delivered_tokens = output_tokens // 2
        journey.ended_s = journey.client_first_token_s + 1.0
        return journey
    journey.outcome, journey.finish_reason = "completed", "stop"
    journey.delivered_tokens = output_tokens
    tpot_s = float(rng.gamma(40, 0.03 / 40 if burst else 0.012 / 40))
    if draw > 0.97:
        journey.preemptions, journey.decode_stall_s = 1, 0.4
    journey.last_token_s = (
        journey.first_token_s + tpot_s * (output_tokens - 1) + journey.decode_stall_s
    )
    journey.ended_s = journey.last_token_s + 0.005
    return journey


def fake_facts(journeys: list[Journey], window: tuple[float, float] | None = None) -> RunFacts:
    """Facts that agree with the journeys."""
    end_s = max(j.ended_s for j in journeys)
    arrivals = [j.request.arrival_s for j in journeys]
    start_s, stop_s = window or (0.0, max(arrivals))
    pools = []
    for number, name in enumerate(POOLS):
        itl = LogHistogram()
        in_pool_s = 0.0
        for j in journeys:
            if j.pool != name:
                continue
            left_s = j.last_token_s if j.outcome == "completed" else j.ended_s
            in_pool_s += left_s - j.dispatched_s
            if j.delivered_tokens > 1 and j.outcome == "completed":
                gap_s = (j.last_token_s - j.first_token_s) / (j.delivered_tokens - 1)
                itl.add_one(gap_s, j.delivered_tokens - 1)
        pools.append(
            PoolFacts(
                name=name,
                model="llama-3.1-8b",
                profile=f"h100-sxm_llama-3.1-8b_bf16_tp{number + 1}",
                engine="vLLM 0.24.0",
                requests_integral_s=in_pool_s,
                itl=itl,
                slow_paths={"shortage_steps": 17 * number},
            )
        )
    usage = []
    for tenant in sorted({j.request.tenant for j in journeys}):
        mine = [j for j in journeys if j.request.tenant == tenant]
        usage.append(
            TenantUsage(
                tenant=tenant,
                requests=len(mine),
                rejected=sum(j.outcome == "rejected" for j in mine),
                prompt_tokens=sum(j.request.prompt_tokens for j in mine),
                completion_tokens=sum(j.delivered_tokens for j in mine),
            )
        )
    replicas = tuple(
        ReplicaRecord(
            pool=name,
            replica=replica,
            gpus=1,
            requested_s=0.0,
            ready_s=0.0,
            stopped_s=nan,
            usd_per_gpu_hour=2.5,
            max_num_seqs=256,
            max_num_batched_tokens=8192,
            num_gpu_blocks=27_000,
            steps=50_000,
            scheduled_tokens=4_000_000,
            busy_s=0.7 * end_s,
            kv_usage_integral_s=(0.2 + 0.1 * replica) * end_s,
            kv_usage_max=0.81,
        )
        for name in POOLS
        for replica in range(2)
    )
    return RunFacts(
        provenance=Provenance(
            scenario="fake",
            trace="burst.csv",
            trace_synthetic=True,
            seed=1,
            transforms=("time_scale 4",),
            versions={"fleetsim": "0.1.0"},
            hashes={"scenario": "ab" * 32, "trace": "cd" * 32},
        ),
        window_start_s=start_s,
        window_end_s=stop_s,
        end_s=end_s,
        arrived=dict(Counter(j.request.tenant for j in journeys)),
        pools=tuple(pools),
        replicas=replicas,
        usage=tuple(usage),
        turns_not_issued={"parent_cancelled": 3, "run_ended": 2},
    )


def record(recorder: Recorder, journeys: list[Journey], samples: int = 200) -> None:
    """Play the journeys into a recorder in the order in which they end, with a timeline."""
    for journey in sorted(journeys, key=lambda j: j.ended_s):
        recorder.journey(journey)
    for t_s in np.linspace(0.0, max(j.ended_s for j in journeys), samples).tolist():
        running, waiting = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for j in journeys:
            if j.queued_s <= t_s < j.scheduled_s:
                waiting[j.pool, j.replica] += 1
            elif j.scheduled_s <= t_s < j.ended_s:
                running[j.pool, j.replica] += 1
        for name in POOLS:
            for replica in range(2):
                key = (name, replica)
                usage = min(1.0, running[key] / 60)
                recorder.sample(t_s, name, replica, running[key], waiting[key], usage, 2)
    recorder.transition(0.0, "chat", 0, "requested", "ready", "initial replicas")


def fake_folder(path: Path, n: int = 500, **recorder_options: int) -> Path:
    """A finished result folder of a fake run with an empty summary."""
    journeys = fake_journeys(n)
    recorder = Recorder(path, **recorder_options)
    record(recorder, journeys)
    recorder.close(fake_facts(journeys), {}, "complete")
    return path
