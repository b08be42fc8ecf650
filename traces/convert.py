"""Write a trace in another format, saying what it cannot hold."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fleetsim.traces.errors import InputError
from fleetsim.traces.parquet import write_parquet
from fleetsim.traces.schema import Trace
from fleetsim.traces.writers.blis import BLIS
from fleetsim.traces.writers.mooncake import MOONCAKE
from fleetsim.traces.writers.target import Target
from fleetsim.traces.writers.timed_trace import TIMED_TRACE


def _write_parquet(trace: Trace, path: Path) -> tuple[Path, ...]:
    write_parquet(trace, path)
    return (path,)


PARQUET = Target(
    "parquet",
    "fleetsim's common schema: loses nothing",
    lambda trace: [],
    _write_parquet,
    lambda trace, path: None,
)

TARGETS: dict[str, Target] = {form.name: form for form in (PARQUET, MOONCAKE, TIMED_TRACE, BLIS)}
"""The formats that :func:`convert_trace` writes, by name."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion wrote.

    Attributes:
        paths: the files; the one that was asked for comes first.
        lost: what the format cannot hold or its reader does not use, a line each, beginning with
            the name of the column.
        command: how to replay the file with the tool it is for; None for none.
    """

    paths: tuple[Path, ...]
    lost: tuple[str, ...]
    command: str | None


def convert_trace(
    trace: Trace, path: str | os.PathLike[str], *, to: str, strict: bool = False
) -> Converted:
    """Write a trace; each file appears whole or not at all.

    Args:
        trace: the trace.
        path: of the file to write.
        to: a name of :data:`TARGETS`.
        strict: make it an error if the format cannot hold something.

    Raises:
        InputError: an unknown format; with ``strict``, what would be lost.
    """
    if to not in TARGETS:
        raise InputError(f"unknown target format {to!r}; known are {', '.join(TARGETS)}")
    target, path = TARGETS[to], Path(path)
    lost = tuple(target.lost(trace))
    if strict and lost:
        raise InputError(f"{path}: not written, as {to} would lose {'; '.join(lost)}")
    paths = target.write(trace, path)
    return Converted(paths, lost, target.command(trace, path))
