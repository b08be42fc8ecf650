"""What a writer of a format has to say and do, and what they share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleetsim.traces.schema import Categorical, Trace


@dataclass(frozen=True, slots=True)
class Target:
    """One format to write.

    Attributes:
        name: as in ``convert_trace(to=...)``.
        about: one line for people.
        lost: what of a trace the format cannot hold, or its reader does not use: one line each,
            beginning with the name of the column.
        write: writes the file and gives the paths of all that was written.
        command: the command line that replays the written file on another tool, None for none.
    """

    name: str
    about: str
    lost: Callable[[Trace], list[str]]
    write: Callable[[Trace, Path], tuple[Path, ...]]
    command: Callable[[Trace, Path], str | None]


def stated_columns(trace: Trace) -> list[str]:
    """The optional columns that say something of at least one request."""
    unknown: dict[str, object] = {"max_tokens": 0, "turn": -1, "parent": -1, "priority": 0}
    names = [
        name
        for name, nothing in unknown.items()
        if (column := getattr(trace, name)) is not None and bool((column != nothing).any())
    ]
    for name in ("session", "tenant", "model", "slo_class", "adapter", "kind"):
        labels: Categorical | None = getattr(trace, name)
        if labels is not None and bool((labels.codes >= 0).any()):
            names.append(name)
    if trace.think_s is not None and not np.isnan(trace.think_s).all():
        names.append("think_s")
    if trace.block_ids is not None and len(trace.block_ids):
        names.append("block_ids")
    return sorted(names)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file; it appears whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
