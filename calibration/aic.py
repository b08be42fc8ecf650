"""Prices of single steps from the measured vLLM kernel tables in ``aiconfigurator-core``.

The package is an extra: it is 110 MB and only needed to make profiles, not to use them.
"""

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fleetsim.calibration.batches import StepBatch
from fleetsim.calibration.profile import Model, Shard
from fleetsim.calibration.step_table import Floats
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
        self.tensor_parallel_size = tensor_parallel_size
        self.is_moe = is_mixture_of_experts(model_config(hf_id))
        self.weight_dtype = weight_dtype
        config: dict[str, Any] = {
            "schema_version": 1,
            "model_name": hf_id,
            "system_name": system,
            "backend": BACKEND,
            "backend_version": TABLES_VERSION,
            "tp_size": tensor_parallel_size,
            "pp_size": 1,
            **self._expert_parallelism(tensor_parallel_size),
        }
        if weight_dtype:
            config["weight_dtype"] = weight_dtype
        try:
            self._prices = _sdk().RustForwardPassPerfModel.from_native(config)
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"{PACKAGE} has no price for {hf_id} on {system} at tensor_parallel_size "
                f"{tensor_parallel_size}: {str(error).splitlines()[0]}"
            ) from error

    def _expert_parallelism(self, tensor_parallel_size: int) -> dict[str, int]:
        """Experts are cut like all other weights, as vLLM does without expert parallelism."""
        return {"moe_tp_size": tensor_parallel_size, "moe_ep_size": 1} if self.is_moe else {}

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
        """What one GPU holds beside the KV cache, at each tensor-parallel size that can be.

        Some cannot: vLLM refuses to cut the experts of a block-quantised model off its blocks.
        """
        shards = []
        for tensor_parallel_size in TENSOR_PARALLEL_SIZES:
            try:
                shards.append(self._shard(tensor_parallel_size))
            except InputError:
                if tensor_parallel_size == self.tensor_parallel_size:
                    raise
        return tuple(shards)

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
        try:
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
                **self._expert_parallelism(tensor_parallel_size),
            )
        except ValueError as error:
            reason = str(error.__cause__ or error).splitlines()[0]
            raise InputError(
                f"{PACKAGE} has no sizes for {self.hf_id} at tensor_parallel_size "
                f"{tensor_parallel_size}: {reason}"
            ) from error
        parts: dict[str, int] = estimate["memory_breakdown"]
        return parts

    def model(self, name: str) -> Model:
        """The architecture, from the model's Hugging Face configuration."""
        config = model_config(self.hf_id)
        heads = config["num_attention_heads"]
        return Model(
            name=name,
            # of a folder its name only: where it lies is nobody else's business
            hf_id=Path(self.hf_id).resolve().name if Path(self.hf_id).is_dir() else self.hf_id,
            num_layers=config["num_hidden_layers"],
            num_kv_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            weights_bytes=self._memory(1, 16384)["weights_bytes"],
            max_context_tokens=config["max_position_embeddings"],
        )


def is_mixture_of_experts(config: Mapping[str, Any]) -> bool:
    """Whether a Hugging Face configuration is of such a model."""
    return any("expert" in key for key in config)


def model_config(model: str) -> dict[str, Any]:
    """A model's Hugging Face configuration: a local folder's, or one that the package ships.

    Raises:
        InputError: there is none, or it is not JSON; the package is not installed.
    """
    _sdk()
    folder = Path(model)
    shipped = files("aiconfigurator_core") / "model_configs"
    name = f"{model.replace('/', '--')}_config.json"
    path = folder / "config.json" if folder.is_dir() else shipped / name
    if not path.is_file():
        if folder.is_dir():
            raise InputError(f"{path}: no such file; give a folder that has one")
        raise InputError(
            f"{model}: {PACKAGE} has no configuration of it; give a folder with its config.json"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: is not a JSON file: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path}: is not a model's config.json")
    return config


def _sdk() -> ModuleType:
    try:
        import_module("aiconfigurator_core")
        return import_module("aiconfigurator_core.sdk")
    except ImportError as error:
        raise InputError(
            f"{PACKAGE} is not installed; it holds the measured kernel tables: "
            "pip install 'fleetsim[aic]'"
        ) from error
