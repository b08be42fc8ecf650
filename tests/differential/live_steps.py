"""A live vLLM engine on the CPU, recorded, fitted, and predicted at another rate.

    python tests/differential/live_steps.py --rate 6 --other-rate 12

What a user does: `fleetsim calibrate record`, `fit`, `check`. The engine records its steps through
the scheduler, and its requests through the stat logger, that the package ships; steps of a load at
one rate make the profile; a load at another rate is then replayed from its arrivals and lengths, as
the stat logger noted them. End-to-end latency must come out within a quarter: a busy machine has no
constant speed. What the stat logger noted is held against what the engine told each request's
client: requests, tokens, the sum of all times to first token, and each request's times.
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
from vllm.v1.metrics.loggers import load_stat_logger_plugin_factories

from fleetsim.calibration.stats_file import Stats, read_stats_file
from fleetsim.calibration.vllm_stat_logger import RecordingStatLogger
from fleetsim.cli import main as fleetsim
from fleetsim.sim.backtest import MeasuredRun, read_run

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
                        "first_token_latency": stats.first_token_latency,
                    }
                )
    return rows


def stat_logger_faults(stats: Stats, rows: list[dict[str, float]]) -> list[str]:
    """What the stat logger noted otherwise than the engine told each request's client."""
    prompts = sum(row["input_toks"] for row in rows)
    outputs = sum(row["output_toks"] for row in rows)
    first_s = sum(row["first_token_latency"] for row in rows)
    decode_s = sum(row["last_token_ts"] - row["first_token_ts"] for row in rows)
    finished = [request for _, request in stats.finished]
    pairs = {
        "requests": (len(finished), len(rows)),
        "prompt tokens": (stats.prompt_tokens, prompts),
        "prompt tokens of finished requests": (sum(r.prompt_tokens for r in finished), prompts),
        "generated tokens": (stats.generation_tokens, outputs),
        "output tokens of finished requests": (sum(r.output_tokens for r in finished), outputs),
        "first tokens": (stats.ttft_count, len(rows)),
        "seconds to first tokens": (stats.ttft_sum_s, first_s),
        "gaps between tokens": (stats.itl_count, outputs - len(rows)),
        "seconds between tokens": (stats.itl_sum_s, decode_s),
    }
    return [
        f"{name}: noted {noted}, told {told}"
        for name, (noted, told) in pairs.items()
        if abs(noted - told) > 1e-6 * max(1.0, told)
    ]


def run_faults(noted: MeasuredRun, told: MeasuredRun) -> list[str]:
    """Requests that the recording says otherwise than the engine told; both read as runs.

    Lengths and the engine's own times are equal; an arrival is computed back from the end. The
    frontend takes a token in some milliseconds behind the engine's stamp.
    """
    faults = []
    for name, width_s in (
        ("prompt_tokens", 0.0),
        ("output_tokens", 0.0),
        ("queue_s", 1e-6),
        ("engine_ttft_s", 1e-6),
        ("arrival_s", 1e-5),
        ("ttft_s", 0.05),
        ("e2e_s", 0.05),
    ):
        apart = abs(getattr(noted, name) - getattr(told, name)).max()
        if apart > width_s:
            faults.append(f"{name}: up to {apart:.6g} apart")
    return faults


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
        os.environ["FLEETSIM_STATS_FILE"] = str(folder / "all_stats.jsonl")
        if RecordingStatLogger not in load_stat_logger_plugin_factories():
            print("vLLM does not find the stat logger through its entry point")
            return 1
        with live_vllm.engine(
            RECORDER,
            # vllm serve finds it through the entry point; this class of engine does not look
            [RecordingStatLogger],
            max_model_len=1024,
            block_size=32,
            num_gpu_blocks_override=256,
            max_num_seqs=32,
            max_num_batched_tokens=512,
            enable_prefix_caching=False,
            disable_log_stats=False,
        ) as engine:
            told = run_load(engine, 1, 20, 20.0)  # the first steps are slow
            told += run_load(engine, 2, options.requests, options.rate)
            engine.engine_core.engine_core.scheduler._step_writer.flush()
            fitted = folder / "steps.jsonl"
            shutil.copy(steps, fitted)
            rows = run_load(engine, 3, options.requests, options.other_rate)
            engine.logger_manager.log()
            stats = _only_last(folder / "all_stats.jsonl", folder / "stats.jsonl", len(rows))
        faults = stat_logger_faults(read_stats_file(folder / "all_stats.jsonl"), told + rows)
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
        faults += run_faults(read_run(stats), read_run(run))
        print(f"stat logger: {len(told + rows)} requests, {len(faults)} faults")
        if faults:
            print("\n".join(faults))
            return 1
        profile = folder / "cpu.json"
        arguments = ["--profile", str(profile), "--run", str(stats)]
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


def _only_last(recorded: Path, out: Path, requests: int) -> Path:
    """The recording's tail that holds the last so many requests."""
    header, *lines = recorded.read_text().splitlines()
    kept: list[str] = []
    while requests > 0:
        kept.append(lines.pop())
        requests -= len(json.loads(kept[-1]).get("finished", []))
    out.write_text("\n".join([header, *reversed(kept)]) + "\n")
    return out


if __name__ == "__main__":
    sys.exit(main())
