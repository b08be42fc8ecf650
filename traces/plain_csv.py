"""The common schema as CSV in the plain format, and its metadata as JSON beside it."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace


def metadata_path(path: Path) -> Path:
    """Where the metadata of a CSV trace is written to."""
    return path.with_name(path.name + ".meta.json")


def write_csv(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace and ``PATH.meta.json``; each appears whole or not at all.

    Raises:
        InputError: a trace that waits for answers: the CSV columns cannot say so.
    """
    if trace.think_s is not None and not np.isnan(trace.think_s).all():
        raise InputError(f"{path}: a closed-loop trace cannot be CSV; write .parquet")
    path = Path(path)
    columns = _columns(trace)
    metadata = json.dumps(dataclasses.asdict(trace.metadata), indent=1, sort_keys=True) + "\n"
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        os.replace(partial, path)
        partial.write_text(metadata, encoding="utf-8")
        os.replace(partial, metadata_path(path))
    finally:
        partial.unlink(missing_ok=True)


def _columns(trace: Trace) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "arrival_s": trace.arrival_s.tolist(),
        "prompt_tokens": trace.prompt_tokens.tolist(),
        "output_tokens": trace.output_tokens.tolist(),
    }
    if trace.max_tokens is not None:
        columns["max_tokens"] = [value or "" for value in trace.max_tokens.tolist()]
    if trace.turn is not None:
        columns["turn"] = ["" if value < 0 else value for value in trace.turn.tolist()]
    if trace.priority is not None:
        columns["priority"] = trace.priority.tolist()
    for name in ("session", "tenant", "model", "slo_class", "adapter"):
        labels = getattr(trace, name)
        if labels is not None:
            names = np.array([*labels.names, ""], dtype=object)  # code -1 picks the last
            columns[name] = names[labels.codes].tolist()
    if trace.block_offsets is not None and trace.block_ids is not None:
        ids = [str(one) for one in trace.block_ids.tolist()]
        spans = itertools.pairwise(trace.block_offsets.tolist())
        columns["block_ids"] = [" ".join(ids[start:end]) for start, end in spans]
        columns["block_tokens"] = [trace.metadata.block_tokens] * len(trace)
    columns["source_row"] = trace.source_row.tolist()
    return columns
