"""The step recorder that ships, held against vLLM's own schedule on random workloads.

    python tests/differential/step_files.py --cases 60 --seed 0

vLLM's engine core runs on the simulated clock, sync and async, as for the golden files. Its
schedulers are watched twice: by the tests' recorder and by `fleetsim.calibration.vllm_recorder`.
Read back, the step file must have the same steps, and each must last as long as it did.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2]))

from differential import real_vllm
from differential.generate import generate
from differential.recording import Recording
from differential.workloads import Workload

from fleetsim.calibration import vllm_recorder
from fleetsim.calibration.step_file import FILE_VARIABLE, read_step_files
from fleetsim.calibration.step_table import StepTable

_made: list[Any] = []


class _Async(vllm_recorder._Recording, real_vllm._RecordingAsyncScheduler):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _made.append(self)


class _Sync(vllm_recorder._Recording, real_vllm._RecordingScheduler):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _made.append(self)


def _install() -> None:
    """Both recorders on one scheduler, both on the simulated clock."""
    plain_config = real_vllm.vllm_config

    def with_a_model(engine: Any) -> Any:
        config = plain_config(engine)
        config.model_config.model = config.model_config.served_model_name = "none"
        config.model_config.dtype = "bfloat16"
        config.parallel_config.data_parallel_index = 0
        return config

    real_vllm.vllm_config = with_a_model
    real_vllm._RecordingAsyncScheduler = _Async  # type: ignore[misc]
    real_vllm._RecordingScheduler = _Sync  # type: ignore[misc]
    vllm_recorder.time = SimpleNamespace(  # type: ignore[assignment]
        monotonic=lambda: _made[-1].notes.now()
    )


def differences(workload: Workload, recording: Recording, steps: StepTable) -> list[str]:
    """What the step file says otherwise than the recording."""
    if len(steps) != len(recording.rows):
        return [f"{len(steps)} steps instead of {len(recording.rows)}"]
    prompts = {r["id"]: r["prompt_tokens"] for r in workload["requests"]}
    found = []
    for i, row in enumerate(recording.rows):
        decodes = [p for name, c, p in row.scheduled if c == 1 and p >= prompts[name]]
        chunks = [(c, p) for name, c, p in row.scheduled if not (c == 1 and p >= prompts[name])]
        expected = (
            len(decodes),
            sum(decodes),
            len(chunks),
            sum(c for c, _ in chunks),
            sum(c * c for c, _ in chunks) / 2,
            sum(c * p for c, p in chunks),
        )
        columns = (
            steps.n_decodes,
            steps.kv_tokens,
            steps.n_prefills,
            steps.prefill_tokens,
            steps.prefill_square,
            steps.prefill_context,
        )
        noted = tuple(float(column[i]) for column in columns)
        lasted_s = row.t_end - row.t_start
        if noted != expected or abs(float(steps.seconds[i]) - lasted_s) > 1e-9:
            found.append(f"step {i}: {noted}, {steps.seconds[i]} s; was {expected}, {lasted_s} s")
    return found


def main() -> int:
    """Run the cases; exit code 1 if a step file differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    _install()
    steps_seen = wrong = 0
    modes = {"async": 0, "sync": 0}
    with TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.cases):
            path = Path(folder) / f"{seed}.jsonl"
            os.environ[FILE_VARIABLE] = str(path)
            workload = generate(seed)
            recording = real_vllm.run(workload)
            _made.pop()._step_writer.close()
            header, steps = read_step_files([path])
            modes[header.scheduling_mode] += 1
            steps_seen += len(steps)
            found = differences(workload, recording, steps)
            wrong += bool(found)
            if found:
                print(f"seed {seed}, {header.scheduling_mode}: {len(found)} differ; {found[0]}")
    print(
        f"{steps_seen:,} steps of {modes['sync']} sync and {modes['async']} async workloads, "
        f"vllm {real_vllm.vllm_version}: {wrong} step files differ"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
