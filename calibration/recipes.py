"""What the shipped profiles are made of beside kernel prices: GPUs, overheads, sources.

Every number here is somebody's measurement or a stated assumption; its ``source`` says which.
"""

from fleetsim.calibration.parameters import HostWork, SchedulingMode
from fleetsim.calibration.profile import ApiServer, Gpu, HostWorkRecord

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
HOST_WORK: dict[SchedulingMode, HostWorkRecord] = {
    "async": HostWorkRecord(
        work=_WORK,
        engine_version="vLLM 0.10.2",
        source=_RESIDUAL_SOURCE
        + "0.15 ms + 15 us from 40 runs of Llama-3.1-70B FP8 at TP 2 and 4, 4 to 64 in flight",
    ),
    "sync": HostWorkRecord(
        work=_WORK,
        engine_version="vLLM 0.12.0",
        source=_RESIDUAL_SOURCE
        + "1.41 ms + 47 us from 60 runs of Qwen3-32B at TP 2 and 4, 8 to 128 in flight",
    ),
}

API_SERVER = ApiServer(
    alpha_s=14e-3,
    beta_s_per_prompt_token=2e-6,
    source=(
        "the same runs need 12 to 20 ms a request beyond steps to reach their mean time to first "
        "token, most of them with prompts near 1,000 tokens: this gives 16 ms there; the split "
        "assumes a tokenizer of 500,000 tokens a second"
    ),
)

MEMORY_SOURCE = (
    "weights: counted from the model's configuration; activations and communication buffers: "
    "aiconfigurator-core's model of vLLM; "
    "runtime_bytes: mean over four published block counts of vLLM on H100; cuda_graph_bytes: "
    "assumed from start-up logs (0.2 to 0.6 GiB), charged since vLLM 0.21"
)
RUNTIME_BYTES = 606 * _MIB
CUDA_GRAPH_BYTES = 512 * _MIB
