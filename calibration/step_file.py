"""Reads step files, as ``fleetsim.calibration.vllm_recorder`` writes them.

JSON lines. The first describes the engine (``Header``); each further one is a step: ``decodes``
and ``decode_kv_tokens`` (computed tokens of the decodes together, before the step), ``prefills``
(a list of [chunk tokens, computed tokens before it]), ``longest_context``, ``scheduled_s`` and
``done_s`` (one monotonic clock: when ``schedule`` was called, when the output had been taken in),
``running`` and ``waiting`` (requests left behind the step).
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fleetsim.calibration.recording import Header, read_recording
from fleetsim.calibration.step_table import Floats, StepTable
from fleetsim.traces.errors import InputError

FORMAT = "fleetsim steps"
FORMAT_VERSION = 1
FILE_VARIABLE = "FLEETSIM_STEPS_FILE"

_Count = Annotated[int, Field(ge=0)]
_Time = Annotated[float, Field(allow_inf_nan=False)]


_MUST_AGREE = (
    "vllm_version",
    "model",
    "gpu",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "tensor_parallel_size",
    "scheduling_mode",
)


class _Step(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    decodes: _Count
    decode_kv_tokens: _Count
    prefills: list[tuple[Annotated[int, Field(ge=1)], _Count]]
    longest_context: _Count
    scheduled_s: _Time
    done_s: _Time
    running: _Count
    waiting: _Count


def read_step_files(paths: Sequence[Path]) -> tuple[Header, StepTable]:
    """All steps of files that were recorded with one engine, in order.

    A step lasts from the end of the one before it, if that left requests behind, so that the
    engine went on at once; otherwise from when it was scheduled. Both hold under sync and async
    scheduling (where a step is scheduled while the one before it runs).

    Raises:
        InputError: a file is no step file, is cut off, holds or is mixed with another engine's
            steps or is given twice, a number is missing or impossible, or time runs backwards.
    """
    headers, tables = zip(*(_read(path) for path in paths), strict=True)
    for number, (path, table) in enumerate(zip(paths, tables, strict=True)):
        for before, other in zip(paths[:number], tables, strict=False):
            # a step kept from the fit would be seen by it
            if len(table) == len(other) and np.array_equal(table.seconds, other.seconds):
                raise InputError(f"{path}: is the same recording as {before}")
    for path, header in zip(paths[1:], headers[1:], strict=True):
        _check_same(paths[0], headers[0], path, header)
    names = StepTable.__dataclass_fields__
    whole = StepTable(
        *(np.concatenate([getattr(table, name) for table in tables]) for name in names)
    )
    return headers[0], whole


def _read(path: Path) -> tuple[Header, StepTable]:
    header, steps = read_recording(path, "step", FORMAT, FORMAT_VERSION, _Step)
    if not steps:
        raise InputError(f"{path}: has no steps")
    return header, _table(path, steps)


def _check_same(first: Path, header: Header, path: Path, other: Header) -> None:
    for key in _MUST_AGREE:
        was, is_ = getattr(header, key), getattr(other, key)
        if was != is_:
            raise InputError(
                f"{path}: {key} is {is_!r}, but {was!r} in {first}; a fit is of one engine"
            )


def _table(path: Path, steps: list[_Step]) -> StepTable:
    seconds = []
    for number, (before, step) in enumerate(pairwise([None, *steps]), 2):
        if step is None:
            continue
        began_s = step.scheduled_s
        # requests left, or this step in flight already (async, behind one that ended them all)
        if before is not None and (
            before.running + before.waiting or step.scheduled_s < before.done_s
        ):
            began_s = before.done_s
        if step.done_s <= began_s or step.done_s <= step.scheduled_s:
            raise InputError(
                f"{path}: line {number}: done_s is {step.done_s}, before the step began"
            )
        if not step.decodes and not step.prefills:
            raise InputError(f"{path}: line {number}: the step has neither decodes nor prefills")
        seconds.append(step.done_s - began_s)

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    return StepTable(
        n_decodes=column([s.decodes for s in steps]),
        kv_tokens=column([s.decode_kv_tokens for s in steps]),
        n_prefills=column([len(s.prefills) for s in steps]),
        prefill_tokens=column([sum(c for c, _ in s.prefills) for s in steps]),
        prefill_square=column([sum(c * c for c, _ in s.prefills) / 2 for s in steps]),
        prefill_context=column([sum(c * p for c, p in s.prefills) for s in steps]),
        longest_context=column([s.longest_context for s in steps]),
        seconds=column(seconds),
    )
