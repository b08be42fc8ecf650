"""Stand-ins for what of vLLM the recorders use; the real ones are met in tests/differential."""

import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class _Logger:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def exception(self, message: str, *arguments: Any) -> None:
        self.messages.append(message % arguments)


LOGGER = _Logger()


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put them where ``import vllm`` looks, until the test ends."""
    LOGGER.messages.clear()
    platform = SimpleNamespace(
        get_device_name=lambda: "Made GPU", get_device_total_memory=lambda: 80 << 30
    )
    modules: dict[str, dict[str, Any]] = {
        "vllm": {"__version__": "0.32.0"},
        "vllm.logger": {"init_logger": lambda name: LOGGER},
        "vllm.platforms": {"current_platform": platform},
        "vllm.v1": {},
        "vllm.v1.metrics": {},
        "vllm.v1.metrics.loggers": {"StatLoggerBase": type("StatLoggerBase", (), {})},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("vllm_recording", "vllm_stat_logger"):
        monkeypatch.delitem(sys.modules, f"fleetsim.calibration.{name}", raising=False)


def config(api_process: int = 0, api_processes: int = 1) -> Any:
    """Of an 8B model on one GPU."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(
            async_scheduling=True, max_num_seqs=16, max_num_batched_tokens=512
        ),
        cache_config=SimpleNamespace(
            cache_dtype="auto", block_size=16, num_gpu_blocks=2000, enable_prefix_caching=True
        ),
        model_config=SimpleNamespace(
            model="org/Made-8B", dtype="torch.bfloat16", max_model_len=8192, quantization=None
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_index=0,
            _api_process_rank=api_process,
            _api_process_count=api_processes,
        ),
        speculative_config=None,
    )


@dataclass
class Finished:
    request_id: str
    finish_reason: str
    e2e_latency: float
    num_prompt_tokens: int
    num_generation_tokens: int
    queued_time: float
    prefill_time: float
    decode_time: float
    num_cached_tokens: int = 0
    num_preemptions: int = 0

    @property
    def inference_time(self) -> float:
        return self.prefill_time + self.decode_time


@dataclass
class IterationStats:
    iteration_timestamp: float
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    num_preempted_reqs: int = 0
    time_to_first_tokens_iter: list[float] = field(default_factory=list)
    inter_token_latencies_iter: list[float] = field(default_factory=list)
    finished_requests: list[Finished] = field(default_factory=list)


def scheduler_stats(running: int = 3) -> Any:
    return SimpleNamespace(
        num_running_reqs=running,
        num_waiting_reqs=2,
        num_skipped_waiting_reqs=1,
        kv_cache_usage=0.25,
        prefix_cache_stats=SimpleNamespace(queries=100, hits=40),
    )
