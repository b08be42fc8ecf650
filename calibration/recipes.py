"""What the shipped profiles are made of beside kernel prices: GPUs, overheads, sources.

Every number here is somebody's measurement or a stated assumption; its ``source`` says which.
"""

from fleetsim.calibration.overheads import ApiServer, HostWorkRecord
from fleetsim.calibration.parameters import HostWork
from fleetsim.calibration.profile import Gpu
from fleetsim.calibration.start_up import Spread, StartUp
from fleetsim.calibration.uncertainty import Uncertainty

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

_RESIDUAL_SOURCE = (
    "mean time per output token of published end-to-end vLLM runs (silicon_sample.csv of "
    "aiconfigurator-core) beyond the kernel prices, found with the simulated engine: "
)
HOST_WORK = (
    HostWorkRecord(
        mode="async",
        work=HostWork(
            base_s=1.19e-3,
            per_seq_s=26.5e-6,
            residue_s=0.01e-3,
            residue_per_seq_s=28.5e-6,
            fitted_seqs=64,
        ),
        engine_version="vLLM 0.10.2",
        source=_RESIDUAL_SOURCE
        + "0.01 ms + 28.5 us a sequence from 38 runs of Llama-3.1-70B FP8 at TP 2 and 4, 4 to 64 "
        "in flight (TP 4 alone 0.18 + 32, TP 2 alone 0 + 30); hidden is what synchronous runs "
        "show beyond that. 40 runs of gpt-oss-120b (vLLM 0.18.0) give 0.03 ms + 8 us, but they ran "
        "other expert kernels than were priced",
    ),
    HostWorkRecord(
        mode="sync",
        work=HostWork(base_s=1.2e-3, per_seq_s=55e-6, fitted_seqs=128),
        engine_version="vLLM 0.12.0",
        source=_RESIDUAL_SOURCE
        + "1.20 ms + 55 us a sequence from 56 runs of Qwen3-32B at TP 2 and 4, 8 to 128 in flight "
        "(TP 4 alone 1.28 + 54, TP 2 alone 0.95 + 57)",
    ),
)
"""Asynchronous scheduling hides what synchronous runs show beyond the residue of asynchronous
ones. ``fitted_seqs`` is the largest number in flight among the runs of the fit."""

API_SERVER = ApiServer(
    api_server_count=1,
    latency_s=10e-3,
    per_request_s=4e-3,
    per_prompt_token_s=2e-6,
    per_chunk_s=0.0,
    engine_version="vLLM 0.10.2 to 0.18.0",
    source=(
        "what the same runs need beyond steps to reach their mean time to first token, with "
        "prompts near 1,000 tokens: 0 to 4 ms (Llama-3.1-70B), 20 ms (gpt-oss-120b), 60 to 70 ms "
        "(Qwen3-32B), all of it with the error of the prefill's price; 16 ms is between. Any "
        "occupying time from 0 to 8 ms a request fits alike, so 4 ms is a guess; 2 us a token "
        "assumes a tokenizer of 500,000 tokens a second; chunks cannot be told from host work"
    ),
)

OVERHEADS = "host work: vLLM 0.10.2 (async) and 0.12.0 (sync); API server: vLLM 0.10.2 to 0.18.0"

VALIDATION_RUNS = (
    "vLLM 0.10.2 to 0.18.0, end to end, of some models and sizes; see docs/validation.md"
)

_HELD_OUT = (
    "root mean square of log(measured / simulated) over published end-to-end vLLM runs on H100 and "
    "H200 that nothing was fitted to (docs/validation.md): "
)
UNCERTAINTY = Uncertainty(
    decode_log_sd=0.07,
    prefill_log_sd=0.33,
    source=_HELD_OUT
    + "mean time per output token and to first token of 166 runs of Llama-70B FP8, Qwen3-32B and, "
    "with fewer than 512 in flight, gpt-oss-120b; the latter holds the API server's error too",
)
UNCERTAINTY_FP8_EXPERTS = Uncertainty(
    decode_log_sd=0.25,
    prefill_log_sd=0.30,
    source=_HELD_OUT
    + "mean time per output token and to first token of 41 runs of MiniMax-M2.5 and "
    "Qwen3-235B-A22B FP8",
)
"""Of mixtures of experts in fp8 with block scales."""

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
    "weights: counted from the model's configuration; activations and communication buffers: "
    "aiconfigurator-core's model of vLLM; "
    "runtime_bytes: mean over four published block counts of vLLM on H100; cuda_graph_bytes: "
    "assumed from start-up logs (0.2 to 0.6 GiB), charged since vLLM 0.21"
)
RUNTIME_BYTES = 606 * _MIB
CUDA_GRAPH_BYTES = 512 * _MIB
