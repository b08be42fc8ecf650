"""Fuzzes an engine against the installed vLLM: `python tests/differential/fuzz.py --cases 200`.

Prints what was covered and the first difference, if any, as a side by side. With `--against` an
engine is named by its module's `run(workload)`, the reference by default. `--expect` names the
engine that is right: the real vLLM, or the reference where vLLM is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from differential.compare import first_difference
from differential.generate import generate
from differential.recording import Recording


def happened(recording: Recording) -> Counter[str]:
    """What a run contained, as counts."""
    counts: Counter[str] = Counter(steps=len(recording.rows))
    for row in recording.rows:
        counts["preemptions"] += len(row.preempted)
        counts["resumptions"] += len(row.resumed)
        counts["hit tokens"] += sum(row.admitted.values())
        counts["hit tokens of resumed"] += sum(row.resumed.values())
    for record in recording.requests.values():
        reason = f"abort while {record.aborted_from}" if record.aborted_from else record.reason
        counts[f"ended by {reason}"] += 1
    return counts


def main() -> int:
    """Run the cases; exit code 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first case's seed")
    parser.add_argument("--expect", default="real_vllm")
    parser.add_argument("--against", default="reference_engine")
    parser.add_argument("--engine-version", default="0.32", choices=["0.32", "0.33"])
    arguments = parser.parse_args()
    expect = importlib.import_module(f"differential.{arguments.expect}")
    against = importlib.import_module(f"differential.{arguments.against}")
    version = getattr(expect, "vllm_version", arguments.expect)
    features: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    differing = 0
    spent_s = [0.0, 0.0]
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        workload = generate(seed, arguments.engine_version)
        started = time.perf_counter()
        want = expect.run(workload)
        middle = time.perf_counter()
        got = against.run(workload)
        spent_s = [spent_s[0] + middle - started, spent_s[1] + time.perf_counter() - middle]
        features.update(workload["features"])
        totals.update(happened(want))
        difference = first_difference(want, got, (arguments.expect, arguments.against))
        if difference is not None:
            differing += 1
            print(f"{workload['name']} ({', '.join(workload['features'])}):\n{difference}\n")
    print(f"{arguments.cases} workloads, seeds from {arguments.seed}, expected from {version}")
    for name, count in sorted(features.items()):
        print(f"  {count:6} workloads with {name}")
    for name, count in sorted(totals.items()):
        print(f"  {count:10} {name}")
    print(f"  {spent_s[0]:.1f} s in {arguments.expect}, {spent_s[1]:.1f} s in {arguments.against}")
    print(f"{differing} workloads differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
