"""A live vLLM engine on the CPU, and fleetsim on what it was asked.

    python tests/differential/live.py
    python tests/differential/live.py --policy priority --long-prefill-token-threshold 48

1. The requests, as they reached the engine, go through fleetsim's engine with the recorded step
   durations: every step must be the same. This is a gate.
2. A step cost is fitted to the recorded steps, and the run simulated from its arrivals alone:
   TTFT, TPOT and E2E are reported beside the measured ones. This is no gate: a busy machine
   has no constant speed.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# last: the engine under test may import the checkout
sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy as np
from differential import fast_engine, live_seconds, live_vllm
from differential.compare import differing_steps, first_difference
from differential.coverage import happened
from differential.live_load import Load
from differential.live_vllm import LiveRun

MAX_MODEL_LEN = 1024
NEEDED = ("preemptions", "resumptions", "hit tokens", "ended by stop", "ended by length")
"""A live run without one of these has shown too little."""


def same_schedule(live: LiveRun) -> bool:
    """Replay the run through fleetsim's engine, and say what differs."""
    durations_s = [row.t_end - row.t_start for row in live.recording.rows]
    found = fast_engine.run(live.workload, leaps=False, durations_s=durations_s)
    recorded = live.recording.without_aborts()
    text = first_difference(recorded, found, ("live vLLM", "fleetsim"))
    counts = happened(live.workload, live.recording)
    print(f"  {differing_steps(recorded, found)} of {len(recorded.rows):,} steps differ")
    for name, count in sorted(counts.items()):
        if count:
            print(f"    {count:8,} {name}")
    missing = [name for name in NEEDED if not counts[name]]
    if missing:
        print(f"  the run had no {', no '.join(missing)}: it shows too little")
    if text is not None:
        print(text)
    return text is None and not missing


def report_seconds(live: LiveRun) -> None:
    """Print the fit, and latencies measured and simulated."""
    fit = live_seconds.fit(live.recording)
    print(
        f"  step cost fitted to {fit.steps:,} steps: R2 {fit.r_squared:.3f},"
        f" median error of a step {fit.median_error:.1%}"
    )
    measured = live_seconds.measured(live.workload, live.recording, live.due_s)
    simulated = live_seconds.simulated(live.workload, live.due_s, fit.parameters)
    for item in fields(measured):
        was_s, is_s = getattr(measured, item.name), getattr(simulated, item.name)
        for statistic in (np.mean, np.median):
            print(
                f"    {statistic.__name__:6} {item.name[:-2].upper():4}"
                f" measured {statistic(was_s) * 1e3:8.1f} ms,"
                f" simulated {statistic(is_s) * 1e3:8.1f} ms"
                f" ({statistic(is_s) / statistic(was_s) - 1.0:+.1%})"
            )


def main() -> int:
    """One engine, one run; exit code 1 if the schedules differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=240)
    parser.add_argument("--rate", type=float, default=8.0, help="requests per second")
    parser.add_argument("--policy", default="fcfs", choices=["fcfs", "priority"])
    parser.add_argument("--long-prefill-token-threshold", type=int, default=0)
    options = parser.parse_args()
    started_s = time.perf_counter()
    load = Load(options.seed, options.requests, options.rate, MAX_MODEL_LEN)
    with live_vllm.engine(
        max_model_len=MAX_MODEL_LEN,
        block_size=32,
        num_gpu_blocks_override=64,
        max_num_seqs=32,
        max_num_batched_tokens=256,
        enable_prefix_caching=True,
        scheduling_policy=options.policy,
        long_prefill_token_threshold=options.long_prefill_token_threshold,
        seed=options.seed,
    ) as engine:
        startup_s = time.perf_counter() - started_s
        live = live_vllm.run(engine, load, f"live, {options.policy}, seed {options.seed}")
    print(
        f"live engine, vllm {live_vllm.vllm_version} on the CPU, {options.policy}, seed"
        f" {options.seed}: {len(live.workload['requests'])} requests in {live.wall_s:.1f} s"
        f" (and {startup_s:.1f} s to start)"
    )
    same = same_schedule(live)
    report_seconds(live)
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
