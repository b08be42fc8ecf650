"""The library of shipped profiles: which models are served how, and the names of that.

A combination ships where its weights fit and leave a KV cache of :data:`LEAST_KV_TOKENS` tokens
with vLLM's defaults, and where vLLM serves it: it cuts experts in fp8 with block scales along
blocks only, so that those of Qwen3-30B-A3B are served on up to 2 GPUs and of Qwen3-235B-A22B on up
to 4. The smaller dense models stop at 4 GPUs, Llama 3.1 8B excepted. Dense models in fp8 are bf16
checkpoints that vLLM quantises (``--quantization fp8``), without block scales.
"""

from dataclasses import dataclass

from fleetsim.traces.errors import InputError

LEAST_KV_TOKENS = 16_384
"""Two steps of the default token budget; with less, hardly two requests are served at a time."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model in one precision on a number of GPUs."""

    slug: str
    model_name: str
    hf_id: str
    precision: str
    gpu: str
    tensor_parallel_size: int
    weight_dtype: str | None = None
    """``fp8`` where vLLM quantises a bf16 checkpoint (``--quantization fp8``)."""
    kv_cache_dtype: str = "bfloat16"
    fp8_rows: str = "raw"

    @property
    def profile_name(self) -> str:
        """Such as ``llama-3.1-8b-bf16-tp1-h100``."""
        return f"{self.slug}-{self.precision}-tp{self.tensor_parallel_size}-{self.gpu}"


_ALL = (1, 2, 4, 8)
_LLAMA_8B = ("llama-3.1-8b", "Llama 3.1 8B", "meta-llama/Meta-Llama-3.1-8B")
_LLAMA_70B = ("llama-3.1-70b", "Llama 3.1 70B", "meta-llama/Meta-Llama-3.1-70B")


def _served(
    names: tuple[str, str, str],
    precision: str,
    h100: tuple[int, ...],
    h200: tuple[int, ...],
    weight_dtype: str | None = None,
) -> tuple[Served, ...]:
    """One model in one precision, on so many H100 and so many H200."""
    return tuple(
        Served(*names, precision, gpu, size, weight_dtype)
        for gpu, sizes in (("h100", h100), ("h200", h200))
        for size in sizes
    )


def _qwen(size: str, suffix: str = "") -> tuple[str, str, str]:
    return f"qwen3-{size.lower()}", f"Qwen3 {size}", f"Qwen/Qwen3-{size}{suffix}"


SERVED: tuple[Served, ...] = (
    *_served(_LLAMA_8B, "bf16", _ALL, _ALL),
    *_served(_LLAMA_8B, "fp8", _ALL, _ALL, "fp8"),
    *_served(_LLAMA_70B, "bf16", (2, 4, 8), (2, 4, 8)),
    *_served(_LLAMA_70B, "fp8", (2, 4, 8), _ALL, "fp8"),
    *_served(_qwen("8B"), "bf16", (1, 2, 4), (1, 2, 4)),
    *_served(_qwen("8B"), "fp8", (1, 2, 4), (1, 2, 4), "fp8"),
    *_served(_qwen("14B"), "bf16", (1, 2, 4), (1, 2, 4)),
    *_served(_qwen("14B"), "fp8", (1, 2, 4), (1, 2, 4), "fp8"),
    *_served(_qwen("32B"), "bf16", _ALL, _ALL),
    *_served(_qwen("32B"), "fp8", _ALL, _ALL, "fp8"),
    *_served(_qwen("30B-A3B"), "bf16", (1, 2, 4), (1, 2, 4)),
    *_served(_qwen("30B-A3B", "-FP8"), "fp8", (1, 2), (1, 2)),
    *_served(_qwen("235B-A22B"), "bf16", (8,), (4, 8)),
    *_served(_qwen("235B-A22B", "-FP8"), "fp8", (4,), (2, 4)),
    *_served(
        ("mixtral-8x7b", "Mixtral 8x7B", "mistralai/Mixtral-8x7B-v0.1"), "bf16", (2, 4, 8), _ALL
    ),
    *_served(("gpt-oss-20b", "gpt-oss 20b", "openai/gpt-oss-20b"), "mxfp4", (1, 2, 4), (1, 2, 4)),
    *_served(("gpt-oss-120b", "gpt-oss 120b", "openai/gpt-oss-120b"), "mxfp4", _ALL, _ALL),
    *_served(("deepseek-v3", "DeepSeek V3", "deepseek-ai/DeepSeek-V3"), "fp8", (), (8,)),
)

NAMES = tuple(served.profile_name for served in SERVED)


def find_recipe(name: str) -> Served:
    """What is served under a profile's name.

    Raises:
        InputError: the name is unknown; lists the known ones.
    """
    for served in SERVED:
        if served.profile_name == name:
            return served
    raise InputError(f"profile {name!r} is not made here; known: {', '.join(NAMES)}")
