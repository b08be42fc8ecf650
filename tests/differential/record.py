"""Records the golden files from the installed vLLM: `python tests/differential/record.py`.

With --check it records into a temporary folder and compares with the files that are there. vLLM
0.32 records everything; 0.33 records workloads under priority and with LoRA adapters only, since
that is where it differs.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from differential import real_vllm
from differential.compare import first_difference
from differential.coverage import PASSED_OVER, happened
from differential.generate import generate
from differential.generate_lora import generate_lora
from differential.golden import GOLDEN, content, load, save
from differential.recording import Recording
from differential.scenarios import scenarios
from differential.scenarios_lora import lora_scenarios
from differential.workloads import Workload

VERSION = ".".join(real_vllm.vllm_version.split(".")[:2])
RECIPE = (
    "vllm.v1.engine.core.EngineCore with its Scheduler or AsyncScheduler on a simulated clock,"
    " no model; recorded by: python tests/differential/record.py"
)
SCALE = 0.3
STEPS = range(60, 400)
"""Random workloads with fewer or more steps are passed over, to keep the files small."""
LORA_PASSED_OVER = 50
"""At least so many times somebody waits for a LoRA slot while another goes in."""
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


def lora_cases() -> list[Case]:
    """The hand-made workloads with adapters, and of each kind the first random one that suits."""
    cases = [(workload, real_vllm.run(workload)) for workload in lora_scenarios(VERSION)]
    missing = {(policy, late) for policy in ("fcfs", "priority") for late in (False, True)}
    for seed in count():
        if not missing:
            break
        workload = generate_lora(seed, VERSION, SCALE)
        engine = workload["engine"]
        kind = (engine["policy"], engine["async_scheduling"])
        if kind in missing:
            recording = real_vllm.run(workload)
            events = happened(workload, recording)
            if len(recording.rows) in STEPS and events[PASSED_OVER] > LORA_PASSED_OVER:
                cases.append((workload, recording))
                missing.remove(kind)
    return cases


def groups() -> dict[str, list[Case]]:
    """What the installed version records, by file name."""
    cases = {
        "priority_scenarios": scenario_cases(("priority",)),
        "priority_sync": random_cases("priority", False, 8),
        "priority_async": random_cases("priority", True, 8),
        "lora": lora_cases(),
    }
    if VERSION == "0.32":
        cases |= {
            "fcfs_scenarios": scenario_cases(("fcfs",)),
            "fcfs_sync": random_cases("fcfs", False, 12),
            "fcfs_async": random_cases("fcfs", True, 16),
        }
    return {f"vllm_{VERSION}_{name}.json.gz": group for name, group in cases.items()}


def record(folder: Path) -> None:
    """Write every file and print its size."""
    for name, cases in groups().items():
        path = folder / name
        save(path, f"vllm {real_vllm.vllm_version}", RECIPE, cases)
        steps = sum(len(recording.rows) for _, recording in cases)
        print(f"{name}: {len(cases)} workloads, {steps:,} steps, {path.stat().st_size:,} bytes")


def differences(folder: Path) -> int:
    """How many of a folder's files have another content than the golden ones; says which."""
    differing = 0
    for path in sorted(folder.iterdir()):
        if content(path) == content(GOLDEN / path.name):
            continue
        differing += 1
        print(f"{path.name} is not what was recorded before")
        pairs = zip(load(GOLDEN / path.name)[1], load(path)[1], strict=False)
        for (workload, before), (_, now) in pairs:
            text = first_difference(before, now, ("golden", "now"))
            if text is not None:
                print(f"{workload['name']}: {text}")
                break
    return differing


def main() -> int:
    """Record, or compare; exit code 1 if a file differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="leave the golden files alone")
    if not parser.parse_args().check:
        record(GOLDEN)
        return 0
    with TemporaryDirectory() as folder:
        record(Path(folder))
        differing = differences(Path(folder))
    print(f"recorded again with vllm {real_vllm.vllm_version}: {differing} files differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
