"""What the recorders inside vLLM share: a file of whole lines, and the engine's description.

Importable only where vLLM is.
"""

import atexit
import json
from pathlib import Path
from typing import Any, TextIO

from vllm import __version__ as vllm_version
from vllm.platforms import current_platform

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


class LineWriter:
    """Appends whole JSON lines to a new file, a second's worth at a time.

    Raises:
        FileExistsError: two engines in one file cannot be told apart.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._file: TextIO = path.open("x", encoding="utf-8")
        self._lines = [json.dumps(header)]
        self._flushed_s = 0.0
        atexit.register(self.close)

    def add(self, line: dict[str, Any], now_s: float) -> None:
        """Take one line."""
        self._lines.append(json.dumps(line, separators=(",", ":")))
        if now_s - self._flushed_s > _FLUSH_S:
            self._flushed_s = now_s
            self.flush()

    def flush(self) -> None:
        """Write what has been taken so far."""
        if self._lines and not self.closed:
            self._file.write("\n".join(self._lines) + "\n")
            self._file.flush()
            self._lines = []

    def close(self) -> None:
        """Write what is left; further lines are not written."""
        self.flush()
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether the file has been closed."""
        return self._file.closed


def engine_header(config: Any, file_format: str, format_version: int) -> dict[str, Any]:
    """The first line of a recording: the format, and the engine by vLLM's own names."""
    scheduler, cache, model = config.scheduler_config, config.cache_config, config.model_config
    text_config = getattr(model, "hf_text_config", None)
    return {
        "format": file_format,
        "format_version": format_version,
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
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
    }


def _device_name() -> str:
    try:
        return str(current_platform.get_device_name())
    except (NotImplementedError, RuntimeError):  # where this process cannot see the device
        return str(current_platform.device_name)


def _device_memory_bytes() -> int | None:
    try:
        return int(current_platform.get_device_total_memory())
    except (NotImplementedError, RuntimeError):  # as above; `fit` then asks for it
        return None
