"""Fuzzes engines against the installed vLLM: `python tests/differential/fuzz.py --cases 200`.

Prints what was covered and each first difference as a side by side. Engines are named
`module[:function]`, where the function (`run`) takes a workload and returns its recording. The one
expected to be right is the real vLLM or, where it is not installed, `--expect reference_engine`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# last: an engine under test may import the checkout
sys.path.append(str(Path(__file__).resolve().parents[2]))

from differential.compare import differing_steps, first_difference
from differential.coverage import happened
from differential.generate import generate
from differential.generate_lora import generate_lora
from differential.recording import Recording
from differential.workloads import Workload

THREE_WAYS = ["reference_engine", "fast_engine:run_each_step", "fast_engine"]
"""The literal reference; the engine that ships, a step an event; the same with leaps."""

_EXPLAINED = 5  # differences shown of one engine


class _Engine:
    """One engine by its name, and what became of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        module_name, _, function = name.partition(":")
        module = importlib.import_module(f"differential.{module_name}")
        self._run: Callable[[Workload], Recording] = getattr(module, function or "run")
        self._reports_aborts: bool = getattr(module, "REPORTS_ABORTS", True)
        self.spent_s = 0.0
        self.steps = 0
        self.differing_steps = 0
        self.differing_seeds: list[int] = []

    def run(self, workload: Workload) -> Recording:
        """Its recording of the workload, on the clock."""
        started_s = time.perf_counter()
        recording = self._run(workload)
        self.spent_s += time.perf_counter() - started_s
        return recording

    def hold_against(self, want: Recording, by: str, workload: Workload, seed: int) -> None:
        """Run the workload too, and note and print the first difference."""
        self.steps += len(want.rows)
        try:
            got = self.run(workload)
        except Exception:  # a fault of the engine under test is a finding; other cases count too
            differing, text = len(want.rows), f"{self.name} failed\n{traceback.format_exc()}"
        else:
            want = want if self._reports_aborts else want.without_aborts()
            difference = first_difference(want, got, (by, self.name))
            if difference is None:
                return
            differing, text = differing_steps(want, got), difference
        self.differing_steps += differing
        self.differing_seeds.append(seed)
        if len(self.differing_seeds) <= _EXPLAINED:
            print(f"{workload['name']} ({', '.join(workload['features'])})\n{text}\n", flush=True)


def main() -> int:
    """Run the cases; exit code 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first case's seed")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of requests")
    parser.add_argument("--lora", action="store_true", help="the same workloads with adapters")
    parser.add_argument("--expect", default="real_vllm")
    parser.add_argument("--against", nargs="+", default=THREE_WAYS)
    parser.add_argument("--engine-version", help="default: the installed vLLM's, else 0.32")
    options = parser.parse_args()
    expect = _Engine(options.expect)
    expected_from, version = options.expect, options.engine_version
    if options.expect == "real_vllm":
        installed = importlib.import_module("differential.real_vllm").vllm_version
        expected_from = f"vllm {installed}"
        version = version or ".".join(installed.split(".")[:2])
    against = [_Engine(name) for name in options.against]
    features: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    make = generate_lora if options.lora else generate
    seeds = range(options.seed, options.seed + options.cases)
    for seed in seeds:
        workload = make(seed, version or "0.32", options.scale)
        want = expect.run(workload)
        features.update(workload["features"])
        totals.update(happened(workload, want))
        for engine in against:
            engine.hold_against(want, expected_from, workload, seed)
    print(
        f"{len(seeds)} workloads, seeds {seeds[0]} to {seeds[-1]},"
        f" rules of {version or '0.32'}, expected from {expected_from}"
    )
    for name, count in sorted(features.items()):
        print(f"  {count:10,} workloads with {name}")
    for name, count in sorted(totals.items()):
        print(f"  {count:10,} {name}")
    print(f"  {expect.spent_s:10.1f} s in {expected_from}")
    for engine in against:
        print(
            f"{engine.name}: {engine.differing_steps} of {engine.steps:,} steps differ, in"
            f" {len(engine.differing_seeds)} of {len(seeds)} workloads ({engine.spent_s:.1f} s)"
        )
        if engine.differing_seeds:
            print(f"  seeds {', '.join(map(str, engine.differing_seeds))}")
    return int(any(engine.differing_seeds for engine in against))


if __name__ == "__main__":
    sys.exit(main())
