"""Schedulers for vLLM that write down what each step computed and when it was done.

    FLEETSIM_STEPS_FILE=steps.jsonl vllm serve MODEL \\
        --scheduler-cls fleetsim.calibration.vllm_recorder.AsyncRecordingScheduler

They are vLLM's own schedulers, watched from a subclass: no decision is changed, nothing is
patched. Importable only where vLLM is; written against vLLM 0.32's V1 engine. The first line of
the file describes the engine, each further line is one step; ``step_file.py`` says what is in
them. A step costs some microseconds to note, and lines reach the file about once a second.
"""

import os
import time
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from fleetsim.calibration.step_file import FILE_VARIABLE, FORMAT, FORMAT_VERSION
from fleetsim.calibration.vllm_recording import LineWriter, engine_header

__all__ = ["AsyncRecordingScheduler", "RecordingScheduler"]


class _Recording:
    """Stands before vLLM's scheduler class; every method does what it did, and notes it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config: Any = self.vllm_config  # type: ignore[attr-defined]
        header = engine_header(config, FORMAT, FORMAT_VERSION)
        self._step_writer = _step_writer(header, config.parallel_config.data_parallel_index)
        # scheduled and not yet updated, by vLLM's object for the step
        self._steps_under_way: dict[int, dict[str, Any]] = {}

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        began_s = time.monotonic()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        if output.num_scheduled_tokens:
            self._steps_under_way[id(output)] = self._noted(output, began_s)
        return output

    def _noted(self, output: Any, began_s: float) -> dict[str, Any]:
        requests: dict[str, Any] = self.requests  # type: ignore[attr-defined]
        decodes = kv_tokens = longest = 0
        prefills = []
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = requests[request_id]
            context = request.num_computed_tokens - tokens  # schedule() has advanced it
            longest = max(longest, context + tokens)
            if tokens == 1 and context >= request.num_prompt_tokens:
                decodes += 1
                kv_tokens += context
            else:
                prefills.append((tokens, context))
        return {
            "scheduled_s": began_s,
            "decodes": decodes,
            "decode_kv_tokens": kv_tokens,
            "prefills": prefills,
            "longest_context": longest,
        }

    def update_from_output(self, scheduler_output: Any, model_output: Any) -> Any:
        result = super().update_from_output(scheduler_output, model_output)  # type: ignore[misc]
        step = self._steps_under_way.pop(id(scheduler_output), None)
        if step is not None and not self._step_writer.closed:
            running, waiting = len(self.running), len(self.waiting)  # type: ignore[attr-defined]
            step["done_s"] = time.monotonic()
            step["running"], step["waiting"] = running, waiting
            self._step_writer.add(step, step["done_s"])
        return result

    def shutdown(self) -> None:
        self._step_writer.close()
        super().shutdown()  # type: ignore[misc]


class RecordingScheduler(_Recording, Scheduler):  # type: ignore[misc]
    """vLLM's synchronous scheduler (``--no-async-scheduling``), recorded."""


class AsyncRecordingScheduler(_Recording, AsyncScheduler):  # type: ignore[misc]
    """vLLM's asynchronous scheduler, its default on GPUs, recorded."""


def _step_writer(header: dict[str, Any], rank: int) -> LineWriter:
    """The file that the environment names; one for each rank of data parallelism."""
    name = os.environ.get(FILE_VARIABLE)
    if not name:
        raise RuntimeError(f"{FILE_VARIABLE} is not set: it names the file for the steps")
    path = Path(f"{name}.dp{rank}" if rank else name)
    try:
        return LineWriter(path, header)
    except FileExistsError:
        raise RuntimeError(f"{path} exists: two engines in one file cannot be told apart") from None
