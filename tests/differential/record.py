"""Records the golden files from the installed vLLM: `python tests/differential/record.py`.

vLLM 0.32 records everything; 0.33 records priority workloads only, since that is where it differs.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from differential import real_vllm
from differential.generate import generate
from differential.golden import GOLDEN, save
from differential.recording import Recording
from differential.scenarios import scenarios
from differential.workloads import Workload

VERSION = ".".join(real_vllm.vllm_version.split(".")[:2])
RECIPE = (
    "vllm.v1.engine.core.EngineCore with its Scheduler or AsyncScheduler on a simulated clock,"
    " no model; recorded by: python tests/differential/record.py"
)
SCALE = 0.3
STEPS = range(60, 400)
"""Random workloads with fewer or more steps are passed over, to keep the files small."""
CALM_SHARE = 4
"""Of this many random workloads, at most one has no preemption."""

Case = tuple[Workload, Recording]


def random_cases(policy: str, asynchronous: bool, wanted: int) -> list[Case]:
    """The first `wanted` seeds of this kind that have a fitting number of steps."""
    cases: list[Case] = []
    calm = 0
    for seed in count():
        workload = generate(seed, VERSION, SCALE)
        engine = workload["engine"]
        if (engine["policy"], engine["async_scheduling"]) == (policy, asynchronous):
            recording = real_vllm.run(workload)
            is_calm = not any(row.preempted for row in recording.rows)
            if len(recording.rows) in STEPS and not (is_calm and calm * CALM_SHARE > len(cases)):
                cases.append((workload, recording))
                calm += is_calm
        if len(cases) == wanted:
            break
    return cases


def scenario_cases(policies: tuple[str, ...]) -> list[Case]:
    """The hand-made workloads of these policies."""
    cases = []
    for workload in scenarios():
        if workload["engine"]["policy"] in policies:
            workload["engine"]["engine_version"] = VERSION
            cases.append((workload, real_vllm.run(workload)))
    return cases


def main() -> None:
    """Record every group and print its size."""
    groups = {
        "priority_scenarios": scenario_cases(("priority",)),
        "priority_sync": random_cases("priority", False, 8),
        "priority_async": random_cases("priority", True, 8),
    }
    if VERSION == "0.32":
        groups |= {
            "fcfs_scenarios": scenario_cases(("fcfs",)),
            "fcfs_sync": random_cases("fcfs", False, 12),
            "fcfs_async": random_cases("fcfs", True, 16),
        }
    for name, cases in groups.items():
        path = GOLDEN / f"vllm_{VERSION}_{name}.json.gz"
        save(path, f"vllm {real_vllm.vllm_version}", RECIPE, cases)
        steps = sum(len(recording.rows) for _, recording in cases)
        print(f"{path.name}: {len(cases)} workloads, {steps} steps, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
