"""The engine's settings, under the names of vLLM's flags."""

from __future__ import annotations

from dataclasses import dataclass

ENGINE_VERSIONS = ("0.32", "0.33")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What one vLLM V1 engine was started with, as far as its schedule depends on it.

    Names and meaning are vLLM 0.32's flags. `num_gpu_blocks` is what vLLM logs at start-up, its
    null block included. `async_scheduling` is on by default, as in vLLM on GPUs.
    `max_loras` is how many different LoRA adapters may run at a time; None is vLLM without
    `enable_lora`. `engine_version` chooses between the two rules for a request that must preempt
    itself under the priority policy (0.32 ends the step's running loop, 0.33 goes on with the next
    request) and for how long a request holds its LoRA slot (see `lora.py`).

    Raises:
        ValueError: for a combination that vLLM refuses at start-up.
    """

    num_gpu_blocks: int
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192
    max_model_len: int = 131072
    block_size: int = 16
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    scheduling_policy: str = "fcfs"
    async_scheduling: bool = True
    engine_version: str = "0.32"
    max_loras: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, got {getattr(self, name)}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs})"
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_model_len ({self.max_model_len}) when chunked prefill is off"
            )
        if not 0 <= self.long_prefill_token_threshold <= self.max_model_len:
            raise ValueError(
                "long_prefill_token_threshold: must be between 0 (off) and max_model_len, got "
                f"{self.long_prefill_token_threshold}"
            )
        if not 0.0 <= self.watermark < 1.0:
            raise ValueError(f"watermark: must be in [0, 1), got {self.watermark}")
        if self.scheduling_policy not in ("fcfs", "priority"):
            raise ValueError(
                f"scheduling_policy: must be fcfs or priority, got {self.scheduling_policy!r}"
            )
        if self.max_loras is not None and self.max_loras < 1:
            raise ValueError(f"max_loras: must be at least 1, got {self.max_loras}")
        if self.engine_version not in ENGINE_VERSIONS:
            raise ValueError(
                f"engine_version: must be one of {', '.join(ENGINE_VERSIONS)}, got "
                f"{self.engine_version!r}"
            )

    def check_kv_fits(self) -> None:
        """Refuse what vLLM refuses at start-up: one request of max_model_len must fit.

        Raises:
            ValueError: saying by how much, and what would fit.
        """
        needed = -(-self.max_model_len // self.block_size)
        if needed > self.num_gpu_blocks - 1:
            raise ValueError(
                f"max_model_len {self.max_model_len} needs {needed} KV blocks of "
                f"{self.block_size} tokens, but only {self.num_gpu_blocks - 1} fit; raise "
                f"gpu_memory_utilization or set max_model_len to at most "
                f"{(self.num_gpu_blocks - 1) * self.block_size}"
            )

    @property
    def watermark_blocks(self) -> int:
        """Free blocks that an admission must leave, while anything runs."""
        return int(self.watermark * self.num_gpu_blocks)
