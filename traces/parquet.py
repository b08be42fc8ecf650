"""The common schema as one Parquet file: plain columns, and the metadata beside them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import SCHEMA_VERSION, Trace, TraceMetadata

METADATA_KEY = b"fleetsim.trace"


def write_parquet(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace; the file appears whole or not at all.

    Unknown values (``max_tokens`` 0, ``turn`` -1, labels -1) become nulls. The same trace gives
    the same bytes within one version of pyarrow.
    """
    columns: dict[str, pa.Array] = {
        "arrival_s": pa.array(trace.arrival_s),
        "prompt_tokens": pa.array(trace.prompt_tokens),
        "output_tokens": pa.array(trace.output_tokens),
    }
    if trace.max_tokens is not None:
        columns["max_tokens"] = pa.array(trace.max_tokens, mask=trace.max_tokens == 0)
    if trace.turn is not None:
        columns["turn"] = pa.array(trace.turn, mask=trace.turn < 0)
    if trace.parent is not None:
        columns["parent"] = pa.array(trace.parent, mask=trace.parent < 0)
    if trace.think_s is not None:
        columns["think_s"] = pa.array(trace.think_s, mask=np.isnan(trace.think_s))
    if trace.priority is not None:
        columns["priority"] = pa.array(trace.priority)
    for name in ("session", "tenant", "model", "slo_class", "adapter", "kind"):
        labels = getattr(trace, name)
        if labels is not None:
            columns[name] = pa.DictionaryArray.from_arrays(
                pa.array(labels.codes, mask=labels.codes < 0), pa.array(labels.names, pa.string())
            )
    if trace.block_offsets is not None and trace.block_ids is not None:
        columns["block_ids"] = pa.LargeListArray.from_arrays(
            pa.array(trace.block_offsets), pa.array(trace.block_ids)
        )
        block_tokens = trace.metadata.block_tokens or 0
        columns["block_tokens"] = pa.array(np.full(len(trace), block_tokens, np.int32))
    columns["source_row"] = pa.array(trace.source_row)
    metadata = json.dumps(dataclasses.asdict(trace.metadata), sort_keys=True)
    table = pa.table(columns).replace_schema_metadata({METADATA_KEY: metadata.encode()})

    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        # ids are numbered by first appearance, so a chain is mostly runs of +1: deltas pack well
        deltas = ["block_ids.list.element"] if "block_ids" in columns else []
        plain = {"arrival_s", "prompt_tokens", "output_tokens", "source_row", "block_ids"}
        pq.write_table(
            table,
            partial,
            compression="zstd",
            use_dictionary=[name for name in columns if name not in plain],
            column_encoding=dict.fromkeys([*deltas, "source_row"], "DELTA_BINARY_PACKED"),
        )
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def decode_metadata(path: Path, stored: Mapping[bytes, bytes] | None) -> TraceMetadata | None:
    """Read the metadata that :func:`write_parquet` stored; None where a file has none.

    Raises:
        InputError: metadata of another schema version, or damaged.
    """
    text = (stored or {}).get(METADATA_KEY)
    if text is None:
        return None
    try:
        fields = json.loads(text)
        version = fields["schema_version"]
        if version == SCHEMA_VERSION:
            fields["warnings"] = tuple(fields["warnings"])
            fields["transforms"] = tuple(fields["transforms"])
            return TraceMetadata(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: its {METADATA_KEY.decode()} metadata is damaged ({error}); write it again"
        ) from None
    raise InputError(
        f"{path}: common schema version {version!r}; this fleetsim reads version {SCHEMA_VERSION}"
    )
