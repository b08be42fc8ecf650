"""What the shipped profiles are made of beside kernel prices: models, GPUs, overheads, sources.

Every number here is somebody's measurement or a stated assumption; its ``source`` says which.
"""

from dataclasses import dataclass

from fleetsim.calibration.overheads import ApiServer, HostWorkRecord
from fleetsim.calibration.parameters import HostWork
from fleetsim.calibration.profile import Gpu
from fleetsim.calibration.start_up import Spread, StartUp
from fleetsim.traces.errors import InputError

SCHEDULER = "vLLM 0.32"

_MIB = 1 << 20

_PRICE_SOURCE = (
    "middle of the on-demand range of specialised GPU clouds in 2026 "
    "(mercatus-ai.com/blog/cloud-gpu-pricing); edit it to what you pay"
)
_HBM_SOURCE = "total_memory as torch.cuda.get_device_properties prints it"

GPUS = {
    "h100": (
        "h100_sxm",
        Gpu(
            name="NVIDIA H100 SXM 80GB",
            hbm_bytes=81_089 * _MIB,
            hbm_source=_HBM_SOURCE,
            usd_per_hour=3.0,
            usd_per_hour_source=_PRICE_SOURCE,
        ),
    ),
    "h200": (
        "h200_sxm",
        Gpu(
            name="NVIDIA H200 SXM 141GB",
            hbm_bytes=143_156 * _MIB,
            hbm_source=_HBM_SOURCE,
            usd_per_hour=4.0,
            usd_per_hour_source=_PRICE_SOURCE,
        ),
    ),
}
"""The package's name of each GPU, and the GPU. vLLM's engine defaults are the same for both."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model in one precision on a number of GPUs; one profile for each GPU type."""

    slug: str
    model_name: str
    hf_id: str
    precision: str
    tensor_parallel_size: int
    weight_dtype: str | None = None
    remarks: tuple[str, ...] = ()

    def profile_name(self, gpu: str) -> str:
        """Such as ``llama-3.1-8b-bf16-tp1-h100``."""
        return f"{self.slug}-{self.precision}-tp{self.tensor_parallel_size}-{gpu}"


FP8_REMARK = (
    "the measured fp8 matrix multiplications are up to 1.6 times slower just above a multiple of "
    "256 tokens than padded batches may be; fitted as measured"
)

SERVED = (
    Served("llama-3.1-8b", "Llama 3.1 8B", "meta-llama/Meta-Llama-3.1-8B", "bf16", 1),
    Served("llama-3.1-70b", "Llama 3.1 70B", "meta-llama/Meta-Llama-3.1-70B", "bf16", 4),
    Served(
        "llama-3.1-70b",
        "Llama 3.1 70B",
        "meta-llama/Meta-Llama-3.1-70B",
        "fp8",
        4,
        "fp8",
        (FP8_REMARK,),
    ),
)

NAMES = tuple(served.profile_name(gpu) for served in SERVED for gpu in GPUS)

_WORK = HostWork(
    base_s=1.26e-3,
    per_seq_s=32e-6,
    residue_s=0.15e-3,
    residue_per_seq_s=15e-6,
    fitted_seqs=128,
)
"""The residue is what asynchronous runs show beyond their kernels. All of it together is what
synchronous runs show, so the rest is what asynchronous scheduling hides."""

_RESIDUAL_SOURCE = (
    "mean time per output token of published end-to-end vLLM runs (silicon_sample.csv of "
    "aiconfigurator-core) beyond the kernel prices, as a + b * sequences: "
)
HOST_WORK = (
    HostWorkRecord(
        mode="async",
        work=_WORK,
        engine_version="vLLM 0.10.2",
        source=_RESIDUAL_SOURCE
        + "0.15 ms + 15 us from 40 runs of Llama-3.1-70B FP8 at TP 2 and 4, 4 to 64 in flight",
    ),
    HostWorkRecord(
        mode="sync",
        work=_WORK,
        engine_version="vLLM 0.12.0",
        source=_RESIDUAL_SOURCE
        + "1.41 ms + 47 us from 60 runs of Qwen3-32B at TP 2 and 4, 8 to 128 in flight",
    ),
)

API_SERVER = ApiServer(
    api_server_count=1,
    latency_s=14e-3,
    per_request_s=0.0,
    per_prompt_token_s=2e-6,
    per_chunk_s=0.0,
    engine_version="vLLM 0.10.2 to 0.12.0",
    source=(
        "the same runs need 12 to 20 ms a request beyond steps to reach their mean time to first "
        "token, most of them with prompts near 1,000 tokens: this gives 16 ms there; the split "
        "assumes a tokenizer of 500,000 tokens a second"
    ),
)

OVERHEADS = "host work: vLLM 0.10.2 (async) and 0.12.0 (sync); API server: vLLM 0.10.2 to 0.12.0"

_IMPORT_S = Spread(
    low=10.0, high=19.0, source="vLLM start-ups measured in arXiv 2606.07362 and vLLM issue 47456"
)
_WEIGHTS_BYTES_PER_S = Spread(
    low=1.0e9,
    high=4.5e9,
    source="vLLM's default safetensors loader from local disk or page cache: 1.1 and 4.3 GB/s on "
    "H200 (vLLM's InstantTensor page), 2.7 GB/s (llm-d-benchmark pull request 399); a network "
    "file system is slower, a streaming loader reaches 10 to 45 GB/s",
)
_PROFILE_S = Spread(
    low=2.0,
    high=12.0,
    source="vLLM issue 47456: 12 s in all on an H100; marin pull request 7615: under 4.1 s",
)
_COMPILE_CACHED_S = Spread(
    low=2.0, high=15.0, source="vLLM pull request 32191: 15.0 s; marin pull request 7615: 2.3 s"
)
_GRAPH_CAPTURE_S = Spread(
    low=4.0,
    high=20.0,
    source="vLLM issue 47456: 15 s; vLLM pull requests 11005: 15 s; 16848: 4.2 s",
)
START_UP = StartUp(
    import_s=_IMPORT_S,
    weights_bytes_per_s=_WEIGHTS_BYTES_PER_S,
    profile_s=_PROFILE_S,
    compile_s=Spread(
        low=15.0,
        high=35.0,
        source="vLLM issue 47456: 24 s; pull requests 32191: 30.7 s; 11005: 19.4 s",
    ),
    compile_cached_s=_COMPILE_CACHED_S,
    warm_up_s=Spread(low=0.0, high=0.0, source="a dense model compiles no kernels when first used"),
    graph_capture_s=_GRAPH_CAPTURE_S,
)
"""Of the engine itself; what it takes to get a node and an image is the cluster's."""

START_UP_FP8_EXPERTS = START_UP.model_copy(
    update={
        "warm_up_s": Spread(
            low=80.0,
            high=200.0,
            source="vLLM issue 47456, Qwen3-30B-A3B FP8 on an H100: DeepGEMM 82 s and, without a "
            "cache of its own, FlashInfer 120 s",
        )
    }
)
"""Of mixtures of experts in fp8, whose kernels are compiled when first used."""

MEMORY_SOURCE = (
    "weights, activations and communication buffers: aiconfigurator-core's model of vLLM; "
    "runtime_bytes: mean over four published block counts of vLLM on H100; cuda_graph_bytes: "
    "assumed from start-up logs (0.2 to 0.6 GiB), charged since vLLM 0.21"
)
RUNTIME_BYTES = 606 * _MIB
CUDA_GRAPH_BYTES = 512 * _MIB


def find_recipe(name: str) -> tuple[Served, str]:
    """The model and the key of the GPU behind a profile's name.

    Raises:
        InputError: the name is unknown; lists the known ones.
    """
    for served in SERVED:
        for gpu in GPUS:
            if served.profile_name(gpu) == name:
                return served, gpu
    raise InputError(f"profile {name!r} is not made here; known: {', '.join(NAMES)}")
