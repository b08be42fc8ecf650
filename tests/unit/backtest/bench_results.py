"""Results of ``vllm bench serve`` that our own engine made, with overheads that are known."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.calibration import HostWork, Profile, load_profile
from fleetsim.calibration.parameters import SchedulingMode
from fleetsim.sim.backtest.bench_parameters import scaled_steps
from fleetsim.sim.backtest.measured import MeasuredRun
from fleetsim.sim.backtest.replay import replay
from fleetsim.sim.engine.settings import EngineSettings

BASE = "llama-3.1-8b-bf16-tp1-h100"
ENGINE = ("num_gpu_blocks=20000", "max_num_seqs=256", "max_num_batched_tokens=4096")
SYNC = (*ENGINE, "async_scheduling=false")
RATES = (2.0, 8.0, 16.0)

HOST_BASE = 1.8
HOST_PER_SEQ = 0.5
API_REQUEST = 0.65
API_TOKEN = 2.5


def base() -> Profile:
    """A shipped profile with stated overheads, so that what comes back does not move with those."""
    shipped = load_profile(BASE)
    work = HostWork(
        base_s=1.26e-3,
        per_seq_s=32e-6,
        residue_s=0.15e-3,
        residue_per_seq_s=15e-6,
        fitted_seqs=128,
    )
    api = {"latency_s": 14e-3, "per_request_s": 0.0, "per_prompt_token_s": 2e-6}
    return shipped.model_copy(
        update={
            "host_work": tuple(r.model_copy(update={"work": work}) for r in shipped.host_work),
            "api_server": shipped.api_server.model_copy(update=api),
        }
    )


def settings(mode: SchedulingMode = "sync") -> EngineSettings:
    return EngineSettings(
        num_gpu_blocks=20000,
        max_num_seqs=256,
        max_num_batched_tokens=4096,
        async_scheduling=mode == "async",
    )


def true_profile(
    mode: SchedulingMode = "sync", decode: float = 1.0, prefill: float = 1.0
) -> Profile:
    """The base profile with other overheads, and perhaps other GPU times."""
    known = base()
    own = known.host_work_for(mode).work
    work: HostWork = replace(
        own,
        base_s=own.base_s * HOST_BASE,
        residue_s=own.residue_s * HOST_BASE,
        per_seq_s=own.per_seq_s * HOST_PER_SEQ,
        residue_per_seq_s=own.residue_per_seq_s * HOST_PER_SEQ,
    )
    record = known.host_work_for(mode).model_copy(update={"work": work})
    others = tuple(other for other in known.host_work if other.mode != mode)
    own_api = known.api_server
    api = {
        "latency_s": own_api.latency_s * API_REQUEST,
        "per_request_s": own_api.per_request_s * API_REQUEST,
        "per_prompt_token_s": own_api.per_prompt_token_s * API_TOKEN,
    }
    return known.model_copy(
        update={
            "host_work": (*others, record),
            "api_server": known.api_server.model_copy(update=api),
            "step_cost": scaled_steps(known.step_cost, decode, prefill),
        }
    )


def made(
    rate: float, profile: Profile, mode: SchedulingMode = "sync", requests: int = 200
) -> dict[str, Any]:
    """One result as vLLM writes it.

    Gaps between tokens are drawn from all of the engine's and scaled to last as long as each answer
    did, so that both their distribution and every answer's time are nearly right.
    """
    rng = np.random.default_rng(round(rate * 100))
    arrival_s = np.cumsum(rng.exponential(1.0 / rate, requests))
    run = MeasuredRun(
        path=Path("made"),
        at_client=True,
        arrival_s=arrival_s - arrival_s[0],
        prompt_tokens=rng.integers(100, 2000, requests),
        output_tokens=rng.integers(20, 300, requests),
        ttft_s=np.ones(requests),
        e2e_s=np.ones(requests),
        queue_s=None,
        engine_ttft_s=None,
        itl_s=None,
        settings={},
    )
    simulated = replay(run, profile, settings(mode))
    engine_gaps_s = np.repeat(simulated.itl_s, simulated.itl_tokens)
    lengths, itls = run.output_tokens.tolist(), []
    for length, span_s in zip(lengths, simulated.e2e_s - simulated.ttft_s, strict=True):
        gaps_s = rng.choice(engine_gaps_s, length - 1)
        itls.append((gaps_s * span_s / gaps_s.sum()).tolist())
    return {
        "model_id": "meta-llama/Llama-3.1-8B",
        "request_rate": rate,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": float((run.arrival_s + simulated.e2e_s).max()),
        "request_throughput": rate,
        "start_times": (99.0 + run.arrival_s).tolist(),
        "input_lens": run.prompt_tokens.tolist(),
        "output_lens": lengths,
        "ttfts": simulated.ttft_s.tolist(),
        "itls": itls,
        "errors": [""] * requests,
    }


def noisy(result: dict[str, Any], share: float, seed: int) -> dict[str, Any]:
    """The result with every request's times off by a share of themselves."""
    rng = np.random.default_rng(seed)
    ttfts = np.array(result["ttfts"]) * (1.0 + share * rng.standard_normal(len(result["ttfts"])))
    itls = []
    for gaps in result["itls"]:
        factor = 1.0 + share * rng.standard_normal()
        itls.append([gap * factor for gap in gaps])
    return {**result, "ttfts": ttfts.tolist(), "itls": itls}


def write(path: Path, result: dict[str, Any]) -> Path:
    path.write_text(json.dumps(result))
    return path


def write_rates(
    folder: Path,
    profile: Profile,
    mode: SchedulingMode = "sync",
    rates: tuple[float, ...] = RATES,
    noise: float = 0.0,
) -> list[Path]:
    """A file for each rate."""
    folder.mkdir(exist_ok=True)
    return [
        write(folder / f"r{rate:g}.json", noisy(made(rate, profile, mode), noise, number))
        for number, rate in enumerate(rates)
    ]
