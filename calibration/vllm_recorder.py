"""Schedulers for vLLM that write down what each step computed and when it was done.

    FLEETSIM_STEPS_FILE=steps.jsonl vllm serve MODEL \\
        --scheduler-cls fleetsim.calibration.vllm_recorder.AsyncRecordingScheduler

They are vLLM's own schedulers, watched from a subclass: no decision is changed, nothing is
patched. Importable only where vLLM is; written against vLLM 0.32's V1 engine. The first line of
the file describes the engine, each further line is one step; ``step_file.py`` says what is in
them. A step costs some microseconds to note, and lines reach the file about once a second.
"""

import atexit
import json
import os
import time
from pathlib import Path
from typing import Any

from vllm import __version__ as vllm_version
from vllm.platforms import current_platform
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from fleetsim.calibration.step_file import FILE_VARIABLE, FORMAT, FORMAT_VERSION

__all__ = ["AsyncRecordingScheduler", "RecordingScheduler"]

_FLUSH_S = 1.0
_MODEL_KEYS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
)


class _StepWriter:
    """Appends whole lines to the file that the environment names, a second's worth at a time."""

    def __init__(self, header: dict[str, Any], rank: int) -> None:
        name = os.environ.get(FILE_VARIABLE)
        if not name:
            raise RuntimeError(f"{FILE_VARIABLE} is not set: it names the file for the steps")
        path = Path(f"{name}.dp{rank}" if rank else name)
        try:
            self._file = path.open("x", encoding="utf-8")
        except FileExistsError:
            raise RuntimeError(
                f"{path} exists: two engines in one file cannot be told apart"
            ) from None
        self._lines = [json.dumps(header)]
        self._flushed_s = 0.0
        atexit.register(self.close)

    def add(self, step: dict[str, Any]) -> None:
        """Take one step."""
        self._lines.append(json.dumps(step, separators=(",", ":")))
        if step["done_s"] - self._flushed_s > _FLUSH_S:
            self._flushed_s = step["done_s"]
            self.flush()

    def flush(self) -> None:
        """Write what has been taken so far."""
        if self._lines:
            self._file.write("\n".join(self._lines) + "\n")
            self._file.flush()
            self._lines = []

    def close(self) -> None:
        """Write what is left; further steps are not taken."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    @property
    def closed(self) -> bool:
        """Whether the engine has been shut down."""
        return self._file.closed


class _Recording:
    """Stands before vLLM's scheduler class; every method does what it did, and notes it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config: Any = self.vllm_config  # type: ignore[attr-defined]
        self._step_writer = _StepWriter(_header(config), config.parallel_config.data_parallel_index)
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
            self._step_writer.add(step)
        return result

    def shutdown(self) -> None:
        self._step_writer.close()
        super().shutdown()  # type: ignore[misc]


class RecordingScheduler(_Recording, Scheduler):  # type: ignore[misc]
    """vLLM's synchronous scheduler (``--no-async-scheduling``), recorded."""


class AsyncRecordingScheduler(_Recording, AsyncScheduler):  # type: ignore[misc]
    """vLLM's asynchronous scheduler, its default on GPUs, recorded."""


def _header(config: Any) -> dict[str, Any]:
    scheduler, cache, model = config.scheduler_config, config.cache_config, config.model_config
    text_config = getattr(model, "hf_text_config", None)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "vllm_version": vllm_version,
        "model": str(getattr(model, "served_model_name", None) or model.model),
        "model_config": {
            key: getattr(text_config, key)
            for key in _MODEL_KEYS
            if getattr(text_config, key, None) is not None
        },
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": getattr(model, "quantization", None),
        "kv_cache_dtype": cache.cache_dtype,
        "gpu": _device_name(),
        "gpu_memory_bytes": _device_memory_bytes(),
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "pipeline_parallel_size": config.parallel_config.pipeline_parallel_size,
        "speculative": config.speculative_config is not None,
        # where it cannot, as on CPUs, vLLM drops async scheduling even if it was asked for
        "scheduling_mode": "async" if scheduler.async_scheduling else "sync",
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_model_len": model.max_model_len,
        "block_size": cache.block_size,
        "num_gpu_blocks": cache.num_gpu_blocks,
    }


def _device_name() -> str:
    try:
        return str(current_platform.get_device_name())
    except (NotImplementedError, RuntimeError):  # where the engine core cannot see the device
        return str(current_platform.device_name)


def _device_memory_bytes() -> int | None:
    try:
        return int(current_platform.get_device_total_memory())
    except (NotImplementedError, RuntimeError):  # as above; `fit` then asks for it
        return None
