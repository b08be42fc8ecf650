"""A live vLLM engine on the CPU, recorded, fitted, and predicted at another rate.

    python tests/differential/live_steps.py --rate 6 --other-rate 12

What a user does: `fleetsim calibrate record`, `fit`, `check`. The engine records its steps through
the scheduler that the package ships; steps of a load at one rate make the profile; a load at
another rate is then replayed from its arrivals and lengths. End-to-end latency must come out within
a quarter: a busy machine has no constant speed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2]))

from differential import live_vllm
from differential.live_load import VOCABULARY
from vllm import SamplingParams

from fleetsim.cli import main as fleetsim

LARGEST_E2E_ERROR = 0.25
RECORDER = "fleetsim.calibration.vllm_recorder.RecordingScheduler"


def run_load(engine: Any, seed: int, requests: int, rate: float) -> list[dict[str, float]]:
    """Poisson arrivals, mixed lengths; per request what vLLM's own statistics say of it."""
    rng = Random(seed)
    due, now_s = [], 0.0
    for _ in range(requests):
        now_s += rng.expovariate(rate)
        prompt = max(4, min(600, int(rng.lognormvariate(4.6, 0.9))))
        due.append((now_s, prompt, max(2, min(160, int(rng.lognormvariate(3.8, 0.7))))))
    began_s = time.time()
    rows: list[dict[str, float]] = []
    number = 0
    while number < len(due) or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            time.sleep(max(0.0, began_s + due[number][0] - time.time()))
        while number < len(due) and began_s + due[number][0] <= time.time():
            due_s, prompt, output = due[number]
            engine.add_request(
                f"{seed}-{number}",
                {"prompt_token_ids": [rng.randrange(200, VOCABULARY) for _ in range(prompt)]},
                SamplingParams(max_tokens=output, ignore_eos=True, detokenize=False),
                arrival_time=began_s + due_s,
            )
            number += 1
        for answer in engine.step():
            if answer.finished:
                stats = answer.metrics
                rows.append(
                    {
                        "input_toks": len(answer.prompt_token_ids),
                        "output_toks": len(answer.outputs[0].token_ids),
                        "arrival_time": stats.arrival_time,
                        "queued_ts": stats.queued_ts,
                        "scheduled_ts": stats.scheduled_ts,
                        "first_token_ts": stats.first_token_ts,
                        "last_token_ts": stats.last_token_ts,
                    }
                )
    return rows


def main() -> int:
    """Record, fit, check; exit code 1 if the prediction is off by more than a quarter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--rate", type=float, default=6.0, help="requests per second to fit to")
    parser.add_argument("--other-rate", type=float, default=12.0, help="to be predicted")
    parser.add_argument("--keep", type=Path, help="a new folder for the step file and the run")
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        steps = folder / "all_steps.jsonl"
        os.environ["FLEETSIM_STEPS_FILE"] = str(steps)
        with live_vllm.engine(
            RECORDER,
            max_model_len=1024,
            block_size=32,
            num_gpu_blocks_override=256,
            max_num_seqs=32,
            max_num_batched_tokens=512,
            enable_prefix_caching=False,
            disable_log_stats=False,
        ) as engine:
            run_load(engine, 1, 20, 20.0)  # the first steps are slow
            run_load(engine, 2, options.requests, options.rate)
            engine.engine_core.engine_core.scheduler._step_writer.flush()
            fitted = folder / "steps.jsonl"
            shutil.copy(steps, fitted)
            rows = run_load(engine, 3, options.requests, options.other_rate)
        run = folder / "run"
        run.mkdir()
        (run / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        settings = {
            "max_num_seqs": 32,
            "max_num_batched_tokens": 512,
            "max_model_len": 1024,
            "block_size": 32,
            "num_gpu_blocks": 256,
            "enable_prefix_caching": False,
            "async_scheduling": False,
        }
        (run / "meta.json").write_text(json.dumps({"engine_kwargs": settings}))
        profile = folder / "cpu.json"
        arguments = ["--profile", str(profile), "--run", str(run)]
        if fleetsim(["calibrate", "fit", str(fitted), "--out", str(profile)]):
            return 1
        if fleetsim(["calibrate", "check", *arguments, "--out", str(folder / "check")]):
            return 1
        report = json.loads((folder / "check" / "check.json").read_text())
    (error,) = (
        row["error"]
        for row in report["rows"]
        if (row["group"], row["metric"], row["statistic"]) == ("all", "E2E", "mean")
    )
    print(f"mean end-to-end latency at the other rate: {error:+.1%}")
    return int(abs(error) > LARGEST_E2E_ERROR)


if __name__ == "__main__":
    sys.exit(main())
