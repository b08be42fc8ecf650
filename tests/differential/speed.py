"""The scheduler's own speed: vLLM's `schedule` + `update_from_output` against fleetsim's two.

    python tests/differential/speed.py

Both schedulers are driven by the same loop through the same workload: no clock, no model, nothing
recorded while the time is taken; only the two calls are timed, and only of steps with at least
`--batch` sequences. Afterwards every step's batch and free blocks are compared, so that it is
the same schedule whose price is told.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import deque
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# last: the engine under test may import the checkout
sys.path.append(str(Path(__file__).resolve().parents[2]))

from differential import fast_engine, real_vllm
from differential.workloads import EngineSettings, RequestSpec, Workload, check
from vllm.v1.outputs import ModelRunnerOutput

from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings as FleetsimSettings


class Seen(NamedTuple):
    """What is compared of a step."""

    sequences: int
    tokens: int
    free_blocks: int


class Timed(NamedTuple):
    """One drive through a workload."""

    steps: list[Seen]
    seconds: list[float]  # of each of them, the two calls together


def closed_batch(max_num_seqs: int, asynchronous: bool) -> Workload:
    """Two batches' worth of requests, all there at the start; half share a prompt's beginning.

    The KV pool is a little smaller than the largest batch gets, so that it also preempts.
    """
    rng = Random(max_num_seqs)
    requests: list[RequestSpec] = []
    for i in range(2 * max_num_seqs):
        family = rng.randrange(8)
        prompt_tokens, output_tokens = rng.randint(150, 350), rng.randint(100, 400)
        requests.append(
            {
                "id": f"r{i:05d}",
                "arrival_s": 0.0,
                "prompt_tokens": prompt_tokens,
                "output_tokens": output_tokens,
                "max_tokens": output_tokens,
                "stop": "length",
                "priority": 0,
                "chain": [(family + 1, 128)] if rng.random() < 0.5 else [],
                "output_segment": None,
                "abort_s": None,
            }
        )
    engine: EngineSettings = {
        "engine_version": "0.32",
        "async_scheduling": asynchronous,
        "policy": "fcfs",
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": 2048,
        "max_model_len": 4096,
        "block_size": 16,
        "num_gpu_blocks": 1 + max_num_seqs * 22,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "watermark": 0.0,
        "scheduler_reserve_full_isl": True,
    }
    workload: Workload = {
        "name": f"{'async' if asynchronous else 'sync'}, max_num_seqs {max_num_seqs}",
        "features": [],
        "engine": engine,
        "requests": requests,
    }
    check(workload)
    return workload


class _Real:
    """vLLM's scheduler behind the loop."""

    def __init__(self, workload: Workload) -> None:
        self._scheduler = real_vllm.bare_scheduler(workload["engine"])
        for index in range(len(workload["requests"])):
            self._scheduler.add_request(real_vllm.request(workload, index))

    def schedule(self) -> Any:
        output = self._scheduler.schedule()
        return output if output.num_scheduled_tokens else None

    def seen(self, step: Any) -> Seen:
        pool = self._scheduler.kv_cache_manager.block_pool
        return Seen(
            len(step.num_scheduled_tokens),
            step.total_num_scheduled_tokens,
            pool.get_num_free_blocks(),
        )

    def result(self, step: Any) -> Any:
        """What the model would hand back: a token of each sequence whose prompt is complete."""
        requests = self._scheduler.requests
        ids = list(step.num_scheduled_tokens)
        return step, ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
            sampled_token_ids=[[] if requests[r].is_prefill_chunk else [7] for r in ids],
        )

    def update(self, result: Any) -> None:
        self._scheduler.update_from_output(*result)


class _Fleetsim:
    """fleetsim's scheduler behind the loop."""

    def __init__(self, workload: Workload) -> None:
        flags: dict[str, Any] = dict(workload["engine"])
        flags["scheduling_policy"] = flags.pop("policy")
        settings = FleetsimSettings(**flags)
        self._scheduler = Scheduler(settings)
        self.schedule = self._scheduler.schedule
        for number, request in enumerate(workload["requests"]):
            self._scheduler.add(
                Sequence(
                    number,
                    request["arrival_s"],
                    request["prompt_tokens"],
                    request["output_tokens"],
                    True,
                    fast_engine.chain_of(request, settings.block_size),
                )
            )

    def seen(self, batch: Any) -> Seen:
        pool = self._scheduler.pool
        return Seen(batch.n_decodes + batch.n_prefills, batch.tokens, pool.num_free_blocks)

    def result(self, batch: Any) -> None:
        """Nothing: the scheduler knows what the step computes."""

    def update(self, result: None) -> None:
        self._scheduler.update()


def drive(scheduler: _Real | _Fleetsim, in_flight: int) -> Timed:
    """Schedule and update until nothing is left, with so many steps in flight."""
    seen: list[Seen] = []
    seconds: list[float] = []
    pending: deque[tuple[int, Any]] = deque()
    clock = time.perf_counter
    while True:
        if len(pending) < in_flight:
            started_s = clock()
            step = scheduler.schedule()
            scheduled_s = clock() - started_s
            if step is not None:
                pending.append((len(seen), scheduler.result(step)))
                seen.append(scheduler.seen(step))
                seconds.append(scheduled_s)
                if len(pending) < in_flight:
                    continue
        if not pending:
            return Timed(seen, seconds)
        number, result = pending.popleft()
        started_s = clock()
        scheduler.update(result)
        seconds[number] += clock() - started_s


def _fastest(drives: list[Timed]) -> Timed:
    """Each step at its fastest: the other times, somebody else had the processor."""
    seconds = [min(step) for step in zip(*(timed.seconds for timed in drives), strict=True)]
    return Timed(drives[0].steps, seconds)


def compare(workload: Workload, least: int, repeats: int) -> float:
    """Print one workload's line.

    Returns:
        How many times faster fleetsim's scheduler is; 0 if the two made different schedules.
    """
    in_flight = 2 if workload["engine"]["async_scheduling"] else 1
    drives: dict[type, list[Timed]] = {_Real: [], _Fleetsim: []}
    for _ in range(repeats):
        for kind, done in drives.items():
            scheduler = kind(workload)
            gc.collect()
            gc.freeze()  # what was there before is not the drive's to look through
            done.append(drive(scheduler, in_flight))
            gc.unfreeze()
    real, fleetsim = (_fastest(done) for done in drives.values())
    same = real.steps == fleetsim.steps
    full = [i for i, step in enumerate(real.steps) if step.sequences >= least]
    real_us = sum(real.seconds[i] for i in full) / len(full) * 1e6
    fleetsim_us = sum(fleetsim.seconds[i] for i in full) / len(full) * 1e6
    mean_batch = sum(real.steps[i].sequences for i in full) / len(full)
    print(
        f"  {workload['name']:26} {len(full):5} steps, {mean_batch:5.0f} sequences:"
        f" vLLM {real_us:7.1f} us, fleetsim {fleetsim_us:5.2f} us,"
        f" {real_us / fleetsim_us:4.0f} times faster{'' if same else ', BUT NOT THE SAME STEPS'}",
        flush=True,
    )
    return real_us / fleetsim_us if same else 0.0


def main() -> int:
    """Compare at two batch sizes and in both modes; exit code 1 if it is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=100, help="only steps with so many sequences")
    parser.add_argument(
        "--repeats", type=int, default=2, help="a step counts at its fastest of so many times"
    )
    parser.add_argument("--least-ratio", type=float, default=100.0, help="less is a failure")
    options = parser.parse_args()
    print(
        f"schedule + update of vllm {real_vllm.vllm_version} and of fleetsim, same workload,"
        f" steps of {options.batch} sequences or more:"
    )
    ratios = [
        compare(closed_batch(max_num_seqs, asynchronous), options.batch, options.repeats)
        for max_num_seqs, asynchronous in ((128, False), (128, True), (512, True))
    ]
    print(f"at least {options.least_ratio:.0f} times are asked for")
    return int(min(ratios) < options.least_ratio)


if __name__ == "__main__":
    sys.exit(main())
