"""What a user of a profile from the kernel tables should know of its prices."""

from collections.abc import Mapping
from typing import Any

from fleetsim.calibration.hf_config import (
    has_block_scales,
    has_latent_attention,
    has_sliding_window,
)
from fleetsim.calibration.served import Served

_FP8_RAW = (
    "the measured fp8 matrix multiplications are up to 1.6 times slower just above a multiple of "
    "256 tokens than padded batches may be; fitted as measured"
)
_FP8_ALIGNED = (
    "fitted without the measured fp8 matrix multiplications of sizes just above a multiple of 16, "
    "as if every batch were padded"
)
_FP8_BLOCKS = (
    "small linear layers in fp8 with block scales were measured at 0.06 to 0.09 ms each, which is "
    "the time to launch them; where CUDA graphs hide that, small steps are shorter than priced"
)
_CONTEXT = (
    "attention of prefills was measured without earlier context; behind one it is computed from "
    "that, and a chunk is never priced below the same chunk without context"
)
_LATENT = (
    "the first layers, which have no experts, are priced as if they had; mixed steps are priced "
    "from their parts, since the tables' package leaves the context of their decodes out"
)
_WINDOW = (
    "scheduler approximate: some layers look at a sliding window, for which vLLM keeps a KV cache "
    "group of its own, while the simulated engine has one group of full attention"
)


def remarks(served: Served, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The remarks on one way to serve a model of that Hugging Face configuration."""
    found = [_CONTEXT]
    latent = has_latent_attention(config)
    if served.precision == "fp8":
        if has_block_scales(config):
            found.append(_FP8_BLOCKS)
        else:
            found.append(_FP8_ALIGNED if served.fp8_rows == "aligned" else _FP8_RAW)
    if latent:
        found.append(_LATENT)
    if has_sliding_window(config):
        found.append(_WINDOW)
    return tuple(found)
