"""A stat logger for vLLM that writes down what its frontend saw of each iteration and request.

    FLEETSIM_STATS_FILE=stats.jsonl vllm serve MODEL

vLLM finds the class through the entry point in the group ``vllm.stat_logger_plugins`` that comes
with the installed package. Without the variable it writes nothing. It never raises into vLLM: what
goes wrong is logged once, and ends the recording. Written against vLLM 0.32's V1 engine;
``stats_file.py`` says what is in the file. Importable only where vLLM is.

One file per engine: engines of data parallelism behind the first append ``.dp1``, ``.dp2``, and
further API server processes, each of which sees its own requests only, ``.api1``, ``.api2``.
"""

import os
import time
from pathlib import Path
from typing import Any

from vllm.logger import init_logger
from vllm.v1.metrics.loggers import StatLoggerBase

from fleetsim.calibration.stats_file import FILE_VARIABLE, FORMAT, FORMAT_VERSION
from fleetsim.calibration.vllm_recording import LineWriter, engine_header

__all__ = ["RecordingStatLogger"]

_logger = init_logger("vllm.fleetsim")  # vLLM shows what is below its own name


class RecordingStatLogger(StatLoggerBase):  # type: ignore[misc]
    """Appends one line per ``record`` call to the file that ``FLEETSIM_STATS_FILE`` names."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._writer: LineWriter | None = None
        name = os.environ.get(FILE_VARIABLE)
        if not name:
            return
        try:
            parallel = vllm_config.parallel_config
            suffix = f".dp{engine_index}" if engine_index else ""
            process = getattr(parallel, "_api_process_rank", 0)
            suffix += f".api{process}" if process > 0 else ""
            header = engine_header(vllm_config, FORMAT, FORMAT_VERSION)
            header["engine_index"] = engine_index
            header["api_processes"] = getattr(parallel, "_api_process_count", 1)
            self._writer = LineWriter(Path(name + suffix), header)
        except Exception:  # whatever it is, vLLM must go on
            self._give_up()

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        """Note one iteration; either of the two may be None."""
        if self._writer is None:
            return
        try:
            now_s = time.monotonic()
            line: dict[str, Any] = {"monotonic_s": now_s, "wall_s": time.time()}
            if scheduler_stats is not None:
                line |= _scheduler(scheduler_stats)
            if iteration_stats is not None:
                line |= _iteration(iteration_stats)
            self._writer.add(line, now_s)
        except Exception:  # whatever it is, vLLM must go on
            self._give_up()

    def log(self) -> None:
        """Called every few seconds: write what a quiet server has not written yet."""
        self._flush()

    def log_engine_initialized(self) -> None:
        """Write the header, so that the file tells at once whether it is being recorded."""
        self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            return
        try:
            self._writer.flush()
        except Exception:  # whatever it is, vLLM must go on
            self._give_up()

    def _give_up(self) -> None:
        self._writer = None
        _logger.exception(
            "fleetsim: %s: recording of statistics ends here; vLLM goes on",
            os.environ.get(FILE_VARIABLE),
        )


def _scheduler(stats: Any) -> dict[str, Any]:
    prefix = stats.prefix_cache_stats
    return {
        "running": stats.num_running_reqs,
        "waiting": stats.num_waiting_reqs + stats.num_skipped_waiting_reqs,
        "kv_usage": stats.kv_cache_usage,
        "prefix_queries": prefix.queries,
        "prefix_hits": prefix.hits,
    }


def _iteration(stats: Any) -> dict[str, Any]:
    first, between = stats.time_to_first_tokens_iter, stats.inter_token_latencies_iter
    return {
        "iteration_s": stats.iteration_timestamp,
        "prompt_tokens": stats.num_prompt_tokens,
        "generation_tokens": stats.num_generation_tokens,
        "preempted": stats.num_preempted_reqs,
        "ttft_count": len(first),
        "ttft_sum_s": sum(first),
        "itl_count": len(between),
        "itl_sum_s": sum(between),
        "finished": [_finished(request) for request in stats.finished_requests],
    }


def _finished(request: Any) -> dict[str, Any]:
    return {
        "request_id": request.request_id,
        "finish_reason": str(request.finish_reason),
        "prompt_tokens": request.num_prompt_tokens,
        "output_tokens": request.num_generation_tokens,
        "cached_tokens": request.num_cached_tokens,
        "preemptions": request.num_preemptions,
        "e2e_s": request.e2e_latency,
        "queued_s": request.queued_time,
        "prefill_s": request.prefill_time,
        "decode_s": request.decode_time,
        "inference_s": request.inference_time,
    }
