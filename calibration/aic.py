"""Prices of single steps from the measured vLLM kernel tables in ``aiconfigurator-core``.

The package is an extra: it is 110 MB and only needed to make profiles, not to use them.
"""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from fleetsim.calibration.batches import StepBatch
from fleetsim.calibration.hf_config import (
    has_latent_attention,
    is_mixture_of_experts,
    model_config,
)
from fleetsim.calibration.profile import Shard
from fleetsim.calibration.step_table import Floats
from fleetsim.calibration.weights import weights_bytes
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
        folder: with the model's Hugging Face ``config.json``.
        name: of the model, for messages.
        system: the package's name of the GPU, such as ``h100_sxm``.
        tensor_parallel_size: GPUs of a replica.
        weight_dtype: ``fp8``, or None for the model's own precision.
        kv_cache_dtype: ``bfloat16`` or ``fp8``. Never left to the package, which takes fp8 for
            every fp8 checkpoint, while vLLM takes bfloat16 where it is not told otherwise.
        systems_folder: other tables than the package's own; see :mod:`.fp8_rows`.

    Raises:
        InputError: the package is not installed, or has no tables for this combination.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        system: str,
        tensor_parallel_size: int,
        *,
        weight_dtype: str | None = None,
        kv_cache_dtype: str = "bfloat16",
        systems_folder: str | None = None,
    ) -> None:
        self.folder = folder
        self.name = name
        self.system = system
        self.tensor_parallel_size = tensor_parallel_size
        self.config = model_config(folder)
        self.is_moe = is_mixture_of_experts(self.config)
        self.has_latent_attention = has_latent_attention(self.config)
        self.weight_dtype = weight_dtype
        request: dict[str, Any] = {
            "schema_version": 1,
            "model_name": folder,
            "system_name": system,
            "backend": BACKEND,
            "backend_version": TABLES_VERSION,
            "tp_size": tensor_parallel_size,
            "pp_size": 1,
            "kv_cache_dtype": kv_cache_dtype,
            # attention was measured in bfloat16 only, whatever the cache holds
            "activation_dtype": "bfloat16",
            **self._expert_parallelism(tensor_parallel_size),
        }
        if weight_dtype:
            request["weight_dtype"] = weight_dtype
        if systems_folder:
            request["systems_path"] = systems_folder
        try:
            self._prices = _sdk().RustForwardPassPerfModel.from_native(request)
        except (ValueError, RuntimeError, OSError, KeyError) as error:
            where = f"{system} at tensor_parallel_size {tensor_parallel_size}"
            raise self._no_price(where, error) from error

    def _expert_parallelism(self, tensor_parallel_size: int) -> dict[str, int]:
        """Experts are cut like all other weights, as vLLM does without expert parallelism."""
        return {"moe_tp_size": tensor_parallel_size, "moe_ep_size": 1} if self.is_moe else {}

    def price_s(self, batches: Sequence[StepBatch]) -> Floats:
        """GPU seconds of each batch.

        Attention of prefills was measured without earlier context. For a chunk behind one the
        package takes the row of the whole length, times the share of it that is computed, and so
        scales away the time that any kernel takes: 64 tokens behind 8,000 would cost less than 64
        alone, by 3 % with Llama 70B on 4 GPUs, 13 % with 8B on 8 and 20 % with DeepSeek. Here a
        chunk never costs less than it does without its context.

        Raises:
            InputError: the tables do not reach as far.
        """
        return np.array(
            [
                max(self._step_s(batch), self._step_s(replace(batch, context_tokens=0)))
                for batch in batches
            ]
        )

    def _step_s(self, batch: StepBatch) -> float:
        if self.has_latent_attention and batch.region == "mixed":
            return self._mixed_latent_s(batch)
        return self._package_s(batch)

    def _mixed_latent_s(self, batch: StepBatch) -> float:
        """A mixed step with latent attention, from prices of its parts.

        The package's own price of it does not depend on the context of the decodes, and grows
        with the square of the number of prefills. vLLM runs decodes and prefills through one
        attention kernel each, so this adds to the prefills what so many tokens more cost in all
        other layers, and what reading their context costs the decodes.
        """
        prefills = replace(batch, n_decodes=0, kv_tokens=0)
        decodes = replace(batch, n_prefills=0, chunk_tokens=0, context_tokens=0)
        first_decodes = replace(decodes, kv_tokens=batch.n_decodes)
        tokens = batch.n_prefills * batch.chunk_tokens
        one_prefill = StepBatch(0, 0, 1, tokens, 0)
        one_mixed = StepBatch(batch.n_decodes, batch.n_decodes, 1, tokens, 0)
        return (
            self._package_s(prefills)
            + max(0.0, self._package_s(one_mixed) - self._package_s(one_prefill))
            + max(0.0, self._package_s(decodes) - self._package_s(first_decodes))
        )

    def _package_s(self, batch: StepBatch) -> float:
        metrics = {
            "version": 1,
            "scheduled_requests": {
                "num_prefill_requests": batch.n_prefills,
                "sum_prefill_tokens": batch.n_prefills * batch.chunk_tokens,
                "sum_prefill_kv_tokens": batch.n_prefills * batch.context_tokens,
                "num_decode_requests": batch.n_decodes,
                "sum_decode_kv_tokens": batch.kv_tokens,
            },
        }
        try:
            milliseconds = self._prices.estimate_forward_pass_time_ms(metrics)
        except (ValueError, RuntimeError, OSError, KeyError) as error:
            raise self._no_price(str(batch), error) from error
        if milliseconds is None:
            raise InputError(f"{PACKAGE} has no price for {self.name} at {batch}")
        return float(milliseconds) * 1e-3

    def _no_price(self, what: str, error: Exception) -> InputError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return InputError(
            f"{PACKAGE} has no price for {self.name} on {what}: "
            f"{reason.replace(self.folder, self.name)[:300]}"
        )

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
            weights_bytes=weights_bytes(self.config, tensor_parallel_size, self.weight_dtype),
            activation_bytes_per_token=round(per_token),
            communication_bytes=few["comm_overhead_bytes"],
        )

    def _memory(self, tensor_parallel_size: int, max_num_tokens: int) -> dict[str, int]:
        try:
            estimate = _sdk().estimate_kv_cache(
                self.folder,
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
                f"{PACKAGE} has no sizes for {self.name} at tensor_parallel_size "
                f"{tensor_parallel_size}: {reason.replace(self.folder, self.name)}"
            ) from error
        parts: dict[str, int] = estimate["memory_breakdown"]
        return parts


def _sdk() -> ModuleType:
    try:
        import_module("aiconfigurator_core")
        return import_module("aiconfigurator_core.sdk")
    except ImportError as error:
        raise InputError(
            f"{PACKAGE} is not installed; it holds the measured kernel tables: "
            "pip install 'fleetsim[aic]'"
        ) from error
