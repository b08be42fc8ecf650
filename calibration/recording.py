"""Reads a recording: JSON lines, of which the first describes the engine that was recorded.

Two files are of this kind: step files (``step_file.py``) and stats files (``stats_file.py``).
"""

import json
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetsim.calibration.parameters import SchedulingMode
from fleetsim.traces.errors import InputError

Line = TypeVar("Line", bound=BaseModel)


class Header(BaseModel):
    """What a recording's first line says of the engine; further keys are let through.

    ``format_version`` is that of the file's format; the rest are vLLM's names.
    """

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    format: str
    format_version: int
    vllm_version: str
    model: str
    gpu: str
    dtype: str
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    gpu_memory_bytes: int | None = None
    tensor_parallel_size: Annotated[int, Field(ge=1)]
    pipeline_parallel_size: Annotated[int, Field(ge=1)] = 1
    speculative: bool = False
    scheduling_mode: SchedulingMode
    max_num_seqs: Annotated[int, Field(ge=1)]
    max_num_batched_tokens: Annotated[int, Field(ge=1)]
    max_model_len: Annotated[int, Field(ge=1)]
    block_size: Annotated[int, Field(ge=1)]
    num_gpu_blocks: int | None = None
    enable_prefix_caching: bool | None = None


def first_line(text: str) -> Any:
    """The first line's value, or None where it is not JSON."""
    try:
        return json.loads(text.split("\n", 1)[0])
    except ValueError:
        return None


def read_recording(
    path: Path, kind: str, file_format: str, format_version: int, line: type[Line]
) -> tuple[Header, list[Line]]:
    """The engine and the lines behind it, each checked.

    Args:
        path: the file.
        kind: what to call it in messages, such as ``step``.
        file_format, format_version: what its first line must say.
        line: the form of the others.

    Raises:
        InputError: the file is of another format or version, is cut off, holds several
            recordings, or a line lacks something; or its engine decoded speculatively or ran in a
            pipeline, which nothing here prices.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    lines = text.splitlines()
    if not lines:
        raise InputError(f"{path}: is empty")
    value = _json(path, 1, lines[0])
    if not isinstance(value, dict) or value.get("format") != file_format:
        raise InputError(
            f"{path}: line 1: is not the header of a {kind} file; see fleetsim calibrate record"
        )
    if value.get("format_version") != format_version:
        raise InputError(
            f"{path}: line 1: format_version is {value.get('format_version')!r}; this fleetsim "
            f"reads {format_version}"
        )
    header = _validated(path, 1, value, Header)
    if header.speculative:
        raise InputError(f"{path}: was recorded with speculative decoding, which is not priced")
    if header.pipeline_parallel_size > 1:
        raise InputError(f"{path}: was recorded with pipeline parallelism, which is not priced")
    if not text.endswith("\n"):
        raise InputError(
            f"{path}: line {len(lines)} is cut off; remove it if the recording was broken off"
        )
    found = []
    for number, row in enumerate(lines[1:], 2):
        value = _json(path, number, row)
        if isinstance(value, dict) and "format" in value:
            raise InputError(
                f"{path}: line {number}: a second recording begins here; give one file for each"
            )
        found.append(_validated(path, number, value, line))
    return header, found


def _json(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise InputError(f"{path}: line {number}: is not JSON: {error}") from error


def _validated(path: Path, number: int, value: Any, form: type[Line]) -> Line:
    try:
        return form.model_validate(value, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the line"
        raise InputError(f"{path}: line {number}: {key}: {first['msg']}") from error
