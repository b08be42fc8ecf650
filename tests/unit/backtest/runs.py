"""Measured runs that our own engine made, so that what should come out is known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from fleetsim.calibration import HostWork, Profile, StepCostParameters, analytic_profile
from fleetsim.sim.backtest import MeasuredRun, Replay, replay
from fleetsim.sim.backtest.measured_run import Origin
from fleetsim.sim.engine.settings import EngineSettings

COST = StepCostParameters(
    constant_s=5e-3, token_slopes_s=(2e-5,), per_decode_kv_token_s=2e-8, per_mixed_kv_token_s=1e-8
)
HOST = HostWork(residue_s=1e-3, residue_per_seq_s=2e-5, fitted_seqs=64)
SETTINGS = EngineSettings(num_gpu_blocks=2000, max_num_seqs=16, max_num_batched_tokens=512)


def profile(host: HostWork = HOST, api_latency_s: float = 0.0) -> Profile:
    return analytic_profile(
        COST, num_gpu_blocks=2000, host=host, max_context_tokens=8192, api_latency_s=api_latency_s
    )


def made_run(
    requests: int = 60, rate: float = 4.0, at_client: bool = False
) -> tuple[MeasuredRun, Replay]:
    """Arrivals and lengths drawn from a seed, latencies by our engine with `profile()`."""
    rng = np.random.default_rng(7)
    arrival_s = np.cumsum(rng.exponential(1.0 / rate, requests))
    asked = MeasuredRun(
        path=Path("made"),
        at_client=at_client,
        arrival_s=arrival_s - arrival_s[0],
        prompt_tokens=rng.integers(20, 900, requests),
        output_tokens=rng.integers(2, 200, requests),
        ttft_s=np.ones(requests),
        e2e_s=np.ones(requests),
        queue_s=None,
        engine_ttft_s=None,
        itl_s=None,
        settings={},
    )
    return asked, replay(asked, profile(api_latency_s=0.01 if at_client else 0.0), SETTINGS)


def write_requests(folder: Path, asked: MeasuredRun, made: Replay) -> Path:
    """requests.jsonl on two clocks, and meta.json."""
    folder.mkdir(exist_ok=True)
    lines = []
    for i in range(len(asked)):
        first = asked.arrival_s[i] + made.ttft_s[i]
        scheduled = first - made.engine_ttft_s[i]
        lines.append(
            json.dumps(
                {
                    "request_id": f"r{i}",
                    "input_toks": int(asked.prompt_tokens[i]),
                    "output_toks": int(asked.output_tokens[i]),
                    "arrival_time": 1.7e9 + asked.arrival_s[i],
                    "queued_ts": 5000.0 + asked.arrival_s[i],
                    "scheduled_ts": 5000.0 + scheduled,
                    "first_token_ts": 5000.0 + first,
                    "last_token_ts": 5000.0 + asked.arrival_s[i] + made.e2e_s[i],
                }
            )
        )
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n")
    meta = {
        "engine_kwargs": {"max_num_seqs": 16, "max_num_batched_tokens": 512, "seed": 1},
        "kv_cache": {"num_gpu_blocks": 2000, "block_size": 16},
        "resolved_config": {"scheduler_config": {"async_scheduling": True}},
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def write_bench(path: Path, asked: MeasuredRun, made: Replay) -> Path:
    """As vllm bench serve --save-result --save-detailed writes it."""
    tpot_s = (made.e2e_s - made.ttft_s) / (asked.output_tokens - 1)
    result = {
        "request_throughput": 4.0,
        "start_times": (99.0 + asked.arrival_s).tolist(),
        "input_lens": asked.prompt_tokens.tolist(),
        "output_lens": asked.output_tokens.tolist(),
        "ttfts": made.ttft_s.tolist(),
        "itls": [
            [gap] * (n - 1)
            for gap, n in zip(tpot_s.tolist(), asked.output_tokens.tolist(), strict=True)
        ],
        "errors": [""] * len(asked),
    }
    path.write_text(json.dumps(result))
    return path


def with_origin(run: MeasuredRun, origin: Origin) -> MeasuredRun:
    """The run, measured elsewhere."""
    return replace(run, origin=origin)
