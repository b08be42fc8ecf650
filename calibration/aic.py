"""Prices of single steps from the measured vLLM kernel tables in ``aiconfigurator-core``.

The package is an extra: it is 110 MB and only needed to make profiles, not to use them.
"""

import importlib.metadata
import json
from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fleetsim.calibration.fit import Floats, StepBatch
from fleetsim.calibration.profile import Model, Shard
from fleetsim.traces.errors import InputError

PACKAGE = "aiconfigurator-core"
BACKEND = "vllm"
TABLES_VERSION = "0.24.0"
"""vLLM version whose kernels were measured; the newest tables for H100 and H200 in 0.12.0."""

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)


def package_version() -> str:
    """The installed version of the package.

    Raises:
        InputError: it is not installed.
    """
    _sdk()
    return importlib.metadata.version(PACKAGE)


class AicPrices:
    """Prices steps of one model on one GPU type at one tensor-parallel size.

    Args:
        hf_id: a model whose configuration the package ships, or a local folder that holds a
            Hugging Face ``config.json``; nothing is downloaded.
        system: the package's name of the GPU, such as ``h100_sxm``.
        tensor_parallel_size: GPUs of a replica.
        weight_dtype: ``fp8``, or None for the model's own precision.

    Raises:
        InputError: the package is not installed, or has no tables for this combination.
    """

    def __init__(
        self, hf_id: str, system: str, tensor_parallel_size: int, weight_dtype: str | None
    ) -> None:
        self.hf_id = hf_id
        self.system = system
        self.weight_dtype = weight_dtype
        config: dict[str, Any] = {
            "schema_version": 1,
            "model_name": hf_id,
            "system_name": system,
            "backend": BACKEND,
            "backend_version": TABLES_VERSION,
            "tp_size": tensor_parallel_size,
            "pp_size": 1,
        }
        if weight_dtype:
            config["weight_dtype"] = weight_dtype
        try:
            self._prices = _sdk().RustForwardPassPerfModel.from_native(config)
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"{PACKAGE} has no price for {hf_id} on {system} at tensor_parallel_size "
                f"{tensor_parallel_size}: {error}"
            ) from error

    def price_s(self, batches: Sequence[StepBatch]) -> Floats:
        """GPU seconds of each batch."""
        return np.array([self._price_s(batch) for batch in batches])

    def _price_s(self, batch: StepBatch) -> float:
        milliseconds = self._prices.estimate_forward_pass_time_ms(
            {
                "version": 1,
                "scheduled_requests": {
                    "num_prefill_requests": batch.n_prefills,
                    "sum_prefill_tokens": batch.n_prefills * batch.chunk_tokens,
                    "sum_prefill_kv_tokens": batch.n_prefills * batch.context_tokens,
                    "num_decode_requests": batch.n_decodes,
                    "sum_decode_kv_tokens": batch.kv_tokens,
                },
            }
        )
        if milliseconds is None:
            raise InputError(f"{PACKAGE} has no price for {self.hf_id} at {batch}")
        return float(milliseconds) * 1e-3

    def shards(self) -> tuple[Shard, ...]:
        """What one GPU holds beside the KV cache, at each tensor-parallel size."""
        return tuple(self._shard(tp) for tp in TENSOR_PARALLEL_SIZES)

    def _shard(self, tensor_parallel_size: int) -> Shard:
        few, many = (self._memory(tensor_parallel_size, tokens) for tokens in (16384, 32768))
        per_token = (many["activations_bytes"] - few["activations_bytes"]) / 16384
        return Shard(
            tensor_parallel_size=tensor_parallel_size,
            weights_bytes=few["weights_bytes"],
            activation_bytes_per_token=round(per_token),
            communication_bytes=few["comm_overhead_bytes"],
        )

    def _memory(self, tensor_parallel_size: int, max_num_tokens: int) -> dict[str, int]:
        estimate = _sdk().estimate_kv_cache(
            self.hf_id,
            self.system,
            BACKEND,
            TABLES_VERSION,
            max_num_tokens=max_num_tokens,
            max_batch_size=1,
            memory_fraction_kind="of_total",
            memory_fraction_value=1.0,
            tp_size=tensor_parallel_size,
            gemm_quant_mode=self.weight_dtype,
            # Only the parts are wanted; a small GPU must not fail for want of a KV cache.
            gpu_memory_capacity_bytes_override=10**13,
        )
        parts: dict[str, int] = estimate["memory_breakdown"]
        return parts

    def model(self, name: str) -> Model:
        """The architecture, from the model's Hugging Face configuration."""
        config = self._config()
        heads = config["num_attention_heads"]
        return Model(
            name=name,
            hf_id=self.hf_id,
            num_layers=config["num_hidden_layers"],
            num_kv_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            weights_bytes=self._memory(1, 16384)["weights_bytes"],
            max_context_tokens=config["max_position_embeddings"],
        )

    def _config(self) -> dict[str, Any]:
        folder = Path(self.hf_id)
        if folder.is_dir():
            text = (folder / "config.json").read_text()
        else:
            shipped = files("aiconfigurator_core") / "model_configs"
            text = (shipped / f"{self.hf_id.replace('/', '--')}_config.json").read_text()
        config: dict[str, Any] = json.loads(text)
        return config


def _sdk() -> ModuleType:
    try:
        return import_module("aiconfigurator_core.sdk")
    except ImportError as error:
        raise InputError(
            f"{PACKAGE} is not installed; it holds the measured kernel tables: "
            "pip install 'fleetsim[aic]'"
        ) from error
