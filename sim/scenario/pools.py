"""Pools of identical replicas, and the engine options of one replica under vLLM's names."""

from typing import Literal

from pydantic import Field, field_validator

from fleetsim.sim.scenario.section import Section


class EngineOptions(Section):
    """`vllm serve` options by their own names; what is left out is vLLM's default for the GPU.

    Whether they go together is for the engine to say: see `fleetsim.sim.scenario.engine`.
    """

    max_num_seqs: int | None = Field(default=None, ge=1)
    """Most sequences running in one step."""
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    """Most tokens, prefill and decode, scheduled in one step."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Context length: prompt and output together; left out, the model's own."""
    block_size: int = Field(default=16, ge=1)
    """Tokens in one KV block."""
    gpu_memory_utilization: float = Field(default=0.92, gt=0.0, le=1.0)
    """Share of the GPU's memory that the engine may use; it sets the number of KV blocks."""
    num_gpu_blocks_override: int | None = Field(default=None, ge=2)
    """KV blocks, instead of what the profile works out; one of them is the null block."""
    enable_prefix_caching: bool = True
    """Keep and reuse the KV blocks of shared prefixes."""
    enable_chunked_prefill: bool = True
    """Let a prompt be prefilled over several steps."""
    long_prefill_token_threshold: int = Field(default=0, ge=0)
    """Longest prefill chunk of one request in one step; 0 is no limit."""
    watermark: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the KV blocks kept free when a waiting request is admitted."""
    scheduler_reserve_full_isl: bool = True
    """Admit a request only when blocks for its whole prompt are free, not just the first chunk."""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    """Order of the waiting queue, and which sequence is preempted when blocks run out."""
    async_scheduling: bool = True
    """Schedule the next step while the GPU works on this one."""
    max_loras: int | None = Field(default=None, ge=1)
    """Most LoRA adapters in one running batch; left out, LoRA is off. Needed where the trace names
    adapters. Their memory is not taken from the KV cache: see Known limits."""
    kv_cache_dtype: str = Field(default="auto", min_length=1)
    """Data type of the KV cache; `auto` is the profile's."""
    api_server_count: int | None = Field(default=None, ge=1)
    """Processes of the API server, each with its own queue of prompts; left out, the profile's."""
    engine_version: Literal["0.32", "0.33"] = "0.32"
    """Whose scheduler: vLLM 0.33 changed who goes on after a self-preemption under priority, and
    how long a LoRA slot is held."""

    @field_validator("engine_version", mode="before")
    @classmethod
    def _unquoted(cls, value: object) -> object:
        """YAML reads 0.33 as a number."""
        return str(value) if isinstance(value, float) else value


class Pool(Section):
    """Identical replicas of one engine configuration."""

    profile: str = Field(min_length=1)
    """Calibrated profile of (GPU, model, precision, TP, engine version): a shipped one by name,
    or a JSON file relative to the scenario file."""
    model: str | None = Field(default=None, min_length=1)
    """The model's name in requests; left out, its Hugging Face id, as `vllm serve` has it."""
    replicas: int = Field(ge=1)
    """How many, all ready from the start."""
    engine: EngineOptions = EngineOptions()
    """The engine's options."""
    gpu_usd_per_hour: float | None = Field(default=None, ge=0.0)
    """Price of one GPU for an hour; left out, the profile's."""
