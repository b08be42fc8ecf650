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

from differential.compare import first_difference
from differential.coverage import happened
from differential.generate import generate
from differential.recording import Recording
from differential.workloads import Workload

_EXPLAINED = 5


def _engine(name: str) -> Callable[[Workload], Recording]:
    module, _, function = name.partition(":")
    engine: Callable[[Workload], Recording] = getattr(
        importlib.import_module(f"differential.{module}"), function or "run"
    )
    return engine


def _difference(
    want: Recording, engine: Callable[[Workload], Recording], workload: Workload, names: list[str]
) -> str | None:
    try:
        got = engine(workload)
    except Exception:  # a fault of the engine under test is a finding; other cases still count
        return f"{names[1]} failed\n{traceback.format_exc()}"
    return first_difference(want, got, (names[0], names[1]))


def main() -> int:
    """Run the cases; exit code 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first case's seed")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of requests")
    parser.add_argument("--expect", default="real_vllm")
    parser.add_argument("--against", nargs="+", default=["reference_engine"])
    parser.add_argument("--engine-version", help="default: the installed vLLM's, else 0.32")
    options = parser.parse_args()
    expect = _engine(options.expect)
    expected_from, version = options.expect, options.engine_version
    if options.expect == "real_vllm":
        installed = importlib.import_module("differential.real_vllm").vllm_version
        expected_from = f"vllm {installed}"
        version = version or ".".join(installed.split(".")[:2])
    against = {name: _engine(name) for name in options.against}
    features: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    differing: Counter[str] = Counter()
    spent_s = dict.fromkeys([options.expect, *options.against], 0.0)
    for seed in range(options.seed, options.seed + options.cases):
        workload = generate(seed, version or "0.32", options.scale)
        started_s = time.perf_counter()
        want = expect(workload)
        spent_s[options.expect] += time.perf_counter() - started_s
        features.update(workload["features"])
        totals.update(happened(workload, want))
        for name, engine in against.items():
            started_s = time.perf_counter()
            difference = _difference(want, engine, workload, [options.expect, name])
            spent_s[name] += time.perf_counter() - started_s
            if difference is not None:
                differing[name] += 1
                if differing[name] <= _EXPLAINED:
                    head = f"{workload['name']} ({', '.join(workload['features'])})"
                    print(f"{head}\n{difference}\n", flush=True)
    print(
        f"{options.cases} workloads, seeds {options.seed} to {options.seed + options.cases - 1},"
        f" rules of {version or '0.32'}, expected from {expected_from}"
    )
    for name, count in sorted(features.items()):
        print(f"  {count:10} workloads with {name}")
    for name, count in sorted(totals.items()):
        print(f"  {count:10} {name}")
    for name, seconds in spent_s.items():
        print(f"  {seconds:10.1f} s in {name}")
    for name in against:
        print(f"{name}: {differing[name]} of {options.cases} workloads differ")
    return int(differing.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
