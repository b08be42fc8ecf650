"""The common schema: a trace as columns.

One :class:`Trace` holds what clients asked for, never what happened to it. Columns are read-only
numpy arrays; a request is a position in all of them. What is known about the origin of the rows
travels along as :class:`TraceMetadata`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleetsim.traces.errors import InputError

SCHEMA_VERSION = 1

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Categorical:
    """A column of labels: ``names[codes[i]]`` is the label of row i.

    Attributes:
        codes: int32, one per row; -1 where the label is unknown.
        names: the labels, in the order of their first appearance.
    """

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        self.codes.setflags(write=False)

    @classmethod
    def from_values(cls, values: Iterable[str | None]) -> Categorical:
        """Encode one label per row, None for an unknown one."""
        encoded = pa.array(values, pa.string()).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return cls(codes.astype(np.int32), tuple(encoded.dictionary.to_pylist()))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str | None:
        """Give the label of one row, None where it is unknown."""
        code = int(self.codes[row])
        return None if code < 0 else self.names[code]

    def take(self, rows: IntArray) -> Categorical:
        """Pick rows; labels that none of them uses are dropped, the rest renumbered."""
        labels = np.array([*self.names, None], dtype=object)  # code -1 picks the None
        return Categorical.from_values(labels[self.codes[rows]])


@dataclass(frozen=True, slots=True)
class TraceMetadata:
    """Where a trace came from and what was done to it.

    ``rows_read == rows_kept + sum(rows_dropped.values())`` always holds.

    Attributes:
        schema_version: version of the common schema.
        source_name: the format or generator, and the data set where it is a known one.
        source_path: base name of the file; None for a generated trace.
        sha256: of the file's content after decompression; None for a generated trace.
        licence: licence of the data, None where unknown.
        url: where the data was published, None where unknown.
        t0_iso: wall-clock time of ``arrival_s == 0`` (ISO 8601), None where unknown.
        time_resolution_s: the grid on which arrivals were stamped, None where unknown.
        block_tokens: prompt tokens that one block id covers; None without block ids.
        prefix_scope: "global" when equal block ids mean equal prompt prefixes across all
            requests; "none" when the trace says nothing about shared prefixes.
        rows_read: data rows in the source.
        rows_kept: requests in the trace.
        rows_dropped: rows left out, by reason.
        warnings: what a reader of results should know, one line each.
        transforms: what was done to the trace since, in order, with parameters.
    """

    source_name: str
    rows_read: int
    rows_kept: int
    rows_dropped: dict[str, int] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
    source_path: str | None = None
    sha256: str | None = None
    licence: str | None = None
    url: str | None = None
    t0_iso: str | None = None
    time_resolution_s: float | None = None
    block_tokens: int | None = None
    prefix_scope: str = "none"
    warnings: tuple[str, ...] = ()
    transforms: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        dropped = sum(self.rows_dropped.values())
        if self.rows_read != self.rows_kept + dropped:
            raise InputError(
                f"trace metadata: rows_read {self.rows_read} must equal rows_kept "
                f"{self.rows_kept} + rows_dropped {dropped}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests as columns, sorted by arrival; the first one arrives at 0.

    Simultaneous requests keep the order of the source.

    Attributes:
        arrival_s: float64, seconds from the first arrival, non-decreasing.
        prompt_tokens: int32, at least 1.
        output_tokens: int32, at least 1; the true length, which no policy may see.
        source_row: int64, 0-based position of the data row in the source (header and blank
            lines not counted).
        metadata: origin, accounting, transforms.
        max_tokens: int32, what the client allowed; 0 where not stated.
        block_offsets: int64, length n + 1; request i owns
            ``block_ids[block_offsets[i]:block_offsets[i + 1]]``.
        block_ids: uint64 chain ids: an id stands for its block and everything before it, so equal
            ids mean equal prefixes. Each covers ``metadata.block_tokens`` prompt tokens, the last
            one possibly fewer.
        session: conversation to which the request belongs.
        turn: int32 position in its session, from 0; -1 where unknown.
        parent: int64 row of the request whose answer this one waits for; -1 where it waits for
            none. A parent comes earlier in the trace.
        think_s: float64 seconds from the parent's last token to this request, in a closed loop;
            NaN where the request comes at its own time. It then has a parent, and its `arrival_s`
            is when it came in the recording, or would have come at the soonest.
        tenant: who pays.
        model: which model was asked for.
        adapter: LoRA adapter that was asked for, on top of the model. Equal blocks under two
            adapters have different KV.
        priority: int16; lower is served first, as in vLLM.
        slo_class: name of the service class.
        kind: what sort of request it is, such as chat, code or rag.

    Raises:
        InputError: columns of unequal length, wrong type, unsorted, out of range.
    """

    arrival_s: FloatArray
    prompt_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    source_row: IntArray
    metadata: TraceMetadata
    max_tokens: npt.NDArray[np.int32] | None = None
    block_offsets: IntArray | None = None
    block_ids: npt.NDArray[np.uint64] | None = None
    session: Categorical | None = None
    turn: npt.NDArray[np.int32] | None = None
    parent: IntArray | None = None
    think_s: FloatArray | None = None
    tenant: Categorical | None = None
    model: Categorical | None = None
    priority: npt.NDArray[np.int16] | None = None
    slo_class: Categorical | None = None
    adapter: Categorical | None = None
    kind: Categorical | None = None

    def __post_init__(self) -> None:
        _check(self)
        for name in _DTYPES:
            array = getattr(self, name)
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.arrival_s)

    def time_scaled(self, factor: float) -> Trace:
        """Compress time: arrivals and think times divided by ``factor``, lengths untouched.

        Raises:
            InputError: a factor that is not a positive finite number.
        """
        if not (math.isfinite(factor) and factor > 0):
            raise InputError(f"time_scale {factor}: must be a positive number, such as 2")
        resolution = self.metadata.time_resolution_s
        return replace(
            self,
            arrival_s=self.arrival_s / factor,
            think_s=None if self.think_s is None else self.think_s / factor,
            metadata=replace(
                self.metadata,
                time_resolution_s=None if resolution is None else resolution / factor,
                transforms=(*self.metadata.transforms, {"name": "time_scale", "factor": factor}),
            ),
        )

    def head(self, count: int) -> Trace:
        """Keep the first ``count`` requests; the others are accounted as dropped by ``head``.

        Raises:
            InputError: a count below 1.
        """
        if count < 1:
            raise InputError(f"head {count}: must be at least 1 request")
        if count >= len(self):
            return self
        kept = self.take(np.arange(count), "head")
        transforms = (*self.metadata.transforms, {"name": "head", "count": count})
        return replace(kept, metadata=replace(kept.metadata, transforms=transforms))

    def take(self, rows: IntArray, reason: str = "taken out") -> Trace:
        """Pick rows, in rising order, as a trace of its own whose first request arrives at 0.

        A request whose parent is not picked comes at its own time. The metadata is that of this
        trace, with the other rows dropped under ``reason``.

        Raises:
            InputError: no rows, or not in rising order.
        """
        if len(rows) == 0 or bool((np.diff(rows) <= 0).any()):
            raise InputError("trace: rows to take must rise, and be at least one")
        changes: dict[str, Any] = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, Categorical):
                changes[column.name] = value.take(rows)
            elif isinstance(value, np.ndarray) and column.name not in (
                "block_offsets",
                "block_ids",
            ):
                changes[column.name] = value[rows]
        changes["arrival_s"] = changes["arrival_s"] - changes["arrival_s"][0]
        if self.parent is not None:
            place = np.full(len(self) + 1, -1, np.int64)  # the last one is for parent -1
            place[rows] = np.arange(len(rows))
            changes["parent"] = place[changes["parent"]]
            if self.think_s is not None:
                orphaned = changes["parent"] < 0
                changes["think_s"] = np.where(orphaned, np.nan, changes["think_s"])
        if self.block_offsets is not None and self.block_ids is not None:
            lengths = np.diff(self.block_offsets)[rows]
            offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
            pick = np.repeat(self.block_offsets[:-1][rows] - offsets[:-1], lengths)
            changes["block_offsets"] = offsets
            changes["block_ids"] = self.block_ids[pick + np.arange(offsets[-1])]
        dropped = len(self) - len(rows)
        accounted = dict(self.metadata.rows_dropped)
        if dropped:
            accounted[reason] = accounted.get(reason, 0) + dropped
        changes["metadata"] = replace(self.metadata, rows_kept=len(rows), rows_dropped=accounted)
        return replace(self, **changes)

    def content_hash(self) -> str:
        """Hash the workload (sha256, hex): every column but ``source_row``.

        Equal for equal requests, whatever the file format, compression or path they came from.
        """
        digest = hashlib.sha256(b"fleetsim trace 1\n")
        head = {
            "requests": len(self),
            "block_tokens": self.metadata.block_tokens,
            "prefix_scope": self.metadata.prefix_scope,
        }
        digest.update(json.dumps(head, sort_keys=True).encode())

        def update(name: str, array: npt.NDArray[Any]) -> None:
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            digest.update(f"\n{name} {little.dtype.str} {len(little)}\n".encode())
            digest.update(little.data)

        for name in _DTYPES:
            array = getattr(self, name)
            if array is not None and name != "source_row":
                update(name, array)
        for name, labels in _labels(self):
            # numbered by first appearance, so that another numbering of the labels hashes alike
            canonical = labels.take(np.arange(len(self)))
            update(name, canonical.codes)
            digest.update(json.dumps(canonical.names).encode())
        return digest.hexdigest()

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the common schema as one Parquet file; it appears whole or not at all."""
        from fleetsim.traces.parquet import write_parquet

        write_parquet(self, path)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> Trace:
        """Read what :meth:`to_parquet` wrote, metadata included.

        Raises:
            InputError: not such a file.
        """
        from fleetsim.traces.load import read_parquet

        return read_parquet(path)


_DTYPES = {
    "arrival_s": np.float64,
    "prompt_tokens": np.int32,
    "output_tokens": np.int32,
    "source_row": np.int64,
    "max_tokens": np.int32,
    "block_offsets": np.int64,
    "block_ids": np.uint64,
    "turn": np.int32,
    "parent": np.int64,
    "think_s": np.float64,
    "priority": np.int16,
}


def _labels(trace: Trace) -> Iterator[tuple[str, Categorical]]:
    for column in fields(trace):
        value = getattr(trace, column.name)
        if isinstance(value, Categorical):
            yield column.name, value


def _check(trace: Trace) -> None:
    count = len(trace.arrival_s)

    def require(holds: bool, message: str) -> None:
        if not holds:
            raise InputError(f"trace: {message}")

    for name, dtype in _DTYPES.items():
        array = getattr(trace, name)
        if array is None:
            continue
        require(array.dtype == dtype, f"column {name} is {array.dtype}, must be {dtype.__name__}")
        if name not in ("block_offsets", "block_ids"):
            require(array.shape == (count,), f"column {name} has {array.shape}, not {count} rows")
    for name, labels in _labels(trace):
        require(len(labels) == count, f"column {name} has {len(labels)} rows, not {count}")
    require(count > 0, "no requests; at least one is needed")
    require(trace.metadata.rows_kept == count, "metadata.rows_kept is not the number of requests")
    require(bool(np.isfinite(trace.arrival_s).all()), "arrival_s holds a NaN or infinity")
    require(float(trace.arrival_s[0]) == 0.0, "the first arrival_s must be 0")
    require(bool((np.diff(trace.arrival_s) >= 0).all()), "arrival_s must not decrease")
    require(int(trace.prompt_tokens.min()) >= 1, "prompt_tokens must be at least 1")
    require(int(trace.output_tokens.min()) >= 1, "output_tokens must be at least 1")
    if trace.parent is not None:
        parents = trace.parent
        right = (parents >= -1) & (parents < np.arange(count))
        require(bool(right.all()), "a parent must be an earlier row, or -1 for none")
    if trace.think_s is not None:
        waits = ~np.isnan(trace.think_s)
        require(trace.parent is not None, "think_s needs a parent column")
        assert trace.parent is not None
        require(bool((trace.think_s[waits] >= 0).all()), "think_s must be at least 0, or NaN")
        require(bool((trace.parent[waits] >= 0).all()), "think_s needs a parent in its row")
        require(bool(np.isfinite(trace.think_s[waits]).all()), "think_s holds an infinity")
    if trace.block_offsets is None or trace.block_ids is None:
        require(
            trace.block_offsets is None and trace.block_ids is None,
            "block_offsets and block_ids go together",
        )
        return
    offsets = trace.block_offsets
    require(offsets.shape == (count + 1,), f"block_offsets must have {count + 1} entries")
    require(
        offsets[0] == 0
        and offsets[-1] == len(trace.block_ids)
        and bool((np.diff(offsets) >= 0).all()),
        "block_offsets must rise from 0 to the number of block_ids",
    )
    block_tokens = trace.metadata.block_tokens
    require(block_tokens is not None and block_tokens >= 1, "block ids need metadata.block_tokens")
