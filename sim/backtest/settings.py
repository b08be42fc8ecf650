"""The settings of the engine that a measured run is replayed on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fleetsim.calibration.profile import Profile
from fleetsim.sim.backtest.measured import MeasuredRun
from fleetsim.sim.backtest.origin import origin_remarks
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.traces.errors import InputError

KEYS = (*(field.name for field in fields(EngineSettings)), "gpu_memory_utilization")
_FOR_BLOCKS = ("gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs", "block_size")


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """The engine, and the remarks that a reader of the comparison must know."""

    engine: EngineSettings
    remarks: tuple[str, ...]


def parse_changes(changes: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs as values of the engine's settings.

    Raises:
        InputError: not of that form, an unknown key, or a value of the wrong kind.
    """
    # of "int | None" the first: left out is None
    kinds = {field.name: str(field.type).split(" | ")[0] for field in fields(EngineSettings)}
    kinds["gpu_memory_utilization"] = "float"
    found: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or key not in kinds:
            raise InputError(f"--engine {change}: give KEY=VALUE; the keys are {', '.join(KEYS)}")
        found[key] = _value(change, kinds[key], text)
    return found


def _value(change: str, kind: str, text: str) -> Any:
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise InputError(f"--engine {change}: give true or false")
        return text.lower() == "true"
    if kind == "str":
        return text
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        raise InputError(f"--engine {change}: give a number ({kind})") from None


def replay_settings(
    run: MeasuredRun, profile: Profile, changes: Mapping[str, Any]
) -> ReplaySettings:
    """What the run states, with ``changes`` before it and the profile's defaults behind it.

    Raises:
        InputError: settings that contradict each other, a request that can never fit, or a run of
            clearly another GPU or model than the profile.
    """
    stated = {**run.settings, **changes}
    defaults = profile.engine_defaults
    remarks = [*run.remarks, *origin_remarks(run, profile)]
    for key in ("max_num_seqs", "max_num_batched_tokens"):
        if key not in stated:
            stated[key] = getattr(defaults, key)
            remarks.append(f"{key} is not in the run; the profile's {stated[key]} is used")
    if "max_model_len" not in stated:
        stated["max_model_len"] = profile.model.max_context_tokens
    if "num_gpu_blocks" not in stated:
        flags = {key: stated[key] for key in _FOR_BLOCKS if key in stated}
        stated["num_gpu_blocks"] = profile.kv_blocks(profile.engine_settings(**flags))
        remarks.append(
            f"num_gpu_blocks is not in the run; {stated['num_gpu_blocks']:,} are computed from "
            "the profile's memory"
        )
    stated.pop("gpu_memory_utilization", None)
    try:
        settings = EngineSettings(**stated)
    except (TypeError, ValueError) as error:
        raise InputError(f"{run.path}: engine settings: {error}") from error
    longest = int((run.prompt_tokens + run.output_tokens).max())
    room = (settings.num_gpu_blocks - 1) * settings.block_size
    limit = min(settings.max_model_len, room)
    if longest > limit:
        raise InputError(
            f"{run.path}: a request of {longest:,} tokens can never fit: max_model_len is "
            f"{settings.max_model_len:,} and the KV cache holds {room:,} tokens"
        )
    return ReplaySettings(settings, (*remarks, *_beyond(profile, settings, longest)))


def _beyond(profile: Profile, settings: EngineSettings, longest_tokens: int) -> list[str]:
    """Where the run may need steps larger than those that the profile was fitted to."""
    valid = profile.validity
    if valid is None:
        return []
    return [
        f"the profile was fitted to at most {fitted:,} {what}; this run may have {needed:,}, and "
        "what lies between is extrapolated"
        for what, fitted, needed in (
            ("decodes in a step", valid.max_decodes, settings.max_num_seqs),
            ("tokens in a step", valid.max_step_tokens, settings.max_num_batched_tokens),
            ("tokens of context", valid.max_context_tokens, longest_tokens),
        )
        if needed > fitted
    ]
