"""Records the golden files from the installed vLLM: `python tests/differential/record.py`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from differential import real_vllm
from differential.golden import GOLDEN, save
from differential.scenarios import scenarios
from differential.workloads import Workload

RECIPE = (
    "recorded from vllm.v1.engine.core.EngineCore and its Scheduler or AsyncScheduler,"
    " simulated clock, no model: python tests/differential/record.py"
)


def main() -> None:
    """Record every group and print its size."""
    groups: dict[str, list[Workload]] = {"scenarios": scenarios()}
    for name, workloads in groups.items():
        cases = [(workload, real_vllm.run(workload)) for workload in workloads]
        path = GOLDEN / f"{name}.json.gz"
        save(path, f"vllm {real_vllm.vllm_version}", RECIPE, cases)
        steps = sum(len(recording.rows) for _, recording in cases)
        print(f"{path.name}: {len(cases)} workloads, {steps} steps, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
