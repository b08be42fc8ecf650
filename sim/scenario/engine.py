"""From a pool's engine options to an engine: vLLM's defaults, its refusals, its KV blocks."""

from fleetsim import calibration
from fleetsim.calibration import Profile
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.scenario.pools import EngineOptions
from fleetsim.traces.errors import InputError


def fill_engine_options(options: EngineOptions, profile: Profile) -> EngineOptions:
    """The options with nothing left out: vLLM's defaults for the profile's GPU and model."""
    seqs, budget, length = _batch_limits(options, profile)
    return options.model_copy(
        update={"max_num_seqs": seqs, "max_num_batched_tokens": budget, "max_model_len": length}
    )


def engine_settings(options: EngineOptions, profile: Profile) -> EngineSettings:
    """What one replica's engine is started with, its number of KV blocks worked out.

    Raises:
        InputError: what vLLM refuses at start-up: a model that does not fit, a context longer
            than the model's or than the KV cache, options that contradict each other.
    """
    seqs, budget, length = _batch_limits(options, profile)
    if length > profile.model.max_context_tokens:
        raise InputError(
            f"max_model_len {length} is more than the "
            f"{profile.model.max_context_tokens} of {profile.model.name}; give at most that"
        )
    blocks = profile.kv_blocks(
        calibration.EngineSettings(
            gpu_memory_utilization=options.gpu_memory_utilization,
            max_num_batched_tokens=budget,
            max_num_seqs=seqs,
            block_size=options.block_size,
            kv_cache_dtype=options.kv_cache_dtype,
            tensor_parallel_size=profile.gpus_per_replica,
            num_gpu_blocks_override=options.num_gpu_blocks_override,
        )
    )
    try:
        settings = EngineSettings(
            num_gpu_blocks=blocks,
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            max_model_len=length,
            block_size=options.block_size,
            enable_prefix_caching=options.enable_prefix_caching,
            enable_chunked_prefill=options.enable_chunked_prefill,
            long_prefill_token_threshold=options.long_prefill_token_threshold,
            watermark=options.watermark,
            scheduler_reserve_full_isl=options.scheduler_reserve_full_isl,
            scheduling_policy=options.scheduling_policy,
            async_scheduling=options.async_scheduling,
            max_loras=options.max_loras,
            engine_version=options.engine_version,
        )
        settings.check_kv_fits()
    except ValueError as error:
        raise InputError(str(error)) from None
    return settings


def _batch_limits(options: EngineOptions, profile: Profile) -> tuple[int, int, int]:
    """max_num_seqs, max_num_batched_tokens and max_model_len, as stated or by default.

    The rules are those of `vllm/engine/arg_utils.py` in vLLM 0.32: a default budget grows to
    max_model_len when prefill is not chunked, and never exceeds max_num_seqs * max_model_len; a
    default max_num_seqs never exceeds the budget.
    """
    defaults = profile.engine_defaults
    length = options.max_model_len or profile.model.max_context_tokens
    seqs = options.max_num_seqs or defaults.max_num_seqs
    budget = options.max_num_batched_tokens
    if budget is None:
        budget = defaults.max_num_batched_tokens
        if not options.enable_chunked_prefill:
            budget = max(budget, length)
        budget = min(budget, seqs * length)
    if options.max_num_seqs is None:
        seqs = min(seqs, budget)
    return seqs, budget, length
