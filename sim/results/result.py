"""A result: what a run left, in memory or in a folder, as pandas frames and a summary."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fleetsim.sim.request import COMPLETED
from fleetsim.sim.results.measures import MEASURE_COLUMNS, Array, measures
from fleetsim.sim.results.schema import RESULT_SCHEMA_VERSION, TABLES
from fleetsim.sim.results.store import FolderStore, Store, read_json
from fleetsim.traces.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_STATUSES = ("complete", "interrupted")


class Result:
    """What a run left.

    Attributes:
        summary: every number of the run by name, None where it is undefined; what each one
            means is in `fleetsim.sim.results.definitions`.
        status: "complete", or "interrupted" when the user stopped the run and the rest of the
            requests are unfinished.
        folder: where it lies, None in memory.

    Raises:
        InputError: when the store lacks what a finished run leaves, or does not hold together.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.folder: Path | None = store.folder if isinstance(store, FolderStore) else None
        where = self.folder or "result in memory"
        status = read_json(store, "status.json")
        if status is None:
            raise InputError(f"{where}: {_remains(store)}")
        if status.get("schema_version") != RESULT_SCHEMA_VERSION:
            raise InputError(
                f"{where}: status.json: written with result schema "
                f"{status.get('schema_version')!r}; this fleetsim reads {RESULT_SCHEMA_VERSION}"
            )
        if status.get("status") not in _STATUSES:
            raise InputError(
                f"{where}: status.json: status {status.get('status')!r}; "
                f"it should be one of {', '.join(_STATUSES)}"
            )
        self.status: str = status["status"]
        summary = read_json(store, "summary.json")
        if summary is None:
            raise InputError(f"{where}: summary.json is missing; the result folder is damaged")
        self.summary: dict[str, Any] = summary
        rows = {name: store.rows(name) for name in TABLES}
        if status.get("rows") != rows:
            raise InputError(
                f"{where}: the tables have {rows} rows, status.json says {status.get('rows')}; "
                "a file was removed or replaced"
            )

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Open a result folder.

        Raises:
            InputError: when there is no such folder, it is not a result, its run died, or it
                was damaged since.
        """
        path = Path(folder)
        if not path.exists():
            raise InputError(f"{path}: no such folder; name one that `fleetsim run --out` wrote")
        if not path.is_dir():
            raise InputError(f"{path}: is a file; a result is the folder that --out named")
        return cls(FolderStore(path))

    def requests(self) -> pd.DataFrame:
        """One row per request, sorted by request_id, times in seconds.

        The journey's fields as the table has them, and after them each of
        `fleetsim.sim.results.measures.MEASURES`, NaN where the request did not complete.
        """
        frame = self._frame("requests")
        completed = (frame["outcome"] == COMPLETED).to_numpy()
        columns = {name: frame[name].to_numpy() for name in MEASURE_COLUMNS}
        for name, values in measures(columns).items():
            frame[name] = np.where(completed, values, np.nan)
        return frame.sort_values("request_id", kind="stable", ignore_index=True)

    def timeline(self) -> pd.DataFrame:
        """One row per sample time and replica: requests running and waiting, KV usage."""
        return self._frame("timeline")

    def replicas(self) -> pd.DataFrame:
        """One row per replica: its life, its limits, its work."""
        return self._frame("replicas")

    def scaling(self) -> pd.DataFrame:
        """One row per change of a replica's state."""
        return self._frame("scaling")

    def usage(self) -> pd.DataFrame:
        """One row per tenant: what the gateway metered."""
        return self._frame("usage")

    def decisions(self) -> pd.DataFrame:
        """One row per routing decision; empty unless the run kept them."""
        return self._frame("decisions")

    def itl_histogram(self) -> pd.DataFrame:
        """Counts of inter-token latencies, by pool and bin."""
        return self._frame("itl_histogram")

    def columns(self, table: str, names: Sequence[str]) -> dict[str, Array]:
        """Some columns of a table as arrays, in the order in which the rows were written."""
        parts = list(self._store.parts(table, names)) or [TABLES[table].empty_table()]
        return {
            name: np.concatenate([p.column(name).to_numpy(zero_copy_only=False) for p in parts])
            for name in names
        }

    def content_hash(self) -> str:
        """SHA-256 over every table's names and values, in hexadecimal.

        It does not depend on pyarrow's version, on compression, nor on where one part ends and
        the next begins; equal runs have equal hashes.
        """
        digest = hashlib.sha256()
        for name, schema in TABLES.items():
            digest.update(f"table {name}\n".encode())
            columns = [_ColumnHash(field) for field in schema]
            for part in self._store.parts(name):
                for column in columns:
                    column.update(part)
            for column in columns:
                digest.update(column.digest())
        return digest.hexdigest()

    def _frame(self, table: str) -> pd.DataFrame:
        parts = list(self._store.parts(table)) or [TABLES[table].empty_table()]
        frame: pd.DataFrame = pa.concat_tables(parts).to_pandas()
        return frame


class _ColumnHash:
    """Hash of one column that grows part by part: values, and lengths where these vary."""

    def __init__(self, field: pa.Field) -> None:
        self._name = field.name
        self._values = hashlib.sha256(f"{field.name}: {field.type}\n".encode())
        self._lengths = hashlib.sha256()

    def update(self, part: pa.Table) -> None:
        for chunk in part.column(self._name).chunks:
            self._add(chunk)

    def digest(self) -> bytes:
        return self._values.digest() + self._lengths.digest()

    def _add(self, chunk: pa.Array) -> None:
        if pa.types.is_string(chunk.type) or pa.types.is_list(chunk.type):
            texts = chunk.to_pylist()
            # A null is not an empty string.
            lengths = [-1 if text is None else len(text) for text in texts]
            self._lengths.update(np.array(lengths, "<i8").tobytes())
            if pa.types.is_string(chunk.type):
                self._values.update("".join(text or "" for text in texts).encode())
            else:
                self._add(chunk.flatten())
            return
        values = chunk.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f":
            # All NaNs are one NaN, and -0.0 is 0.0.
            values = np.where(np.isnan(values), np.nan, values + 0.0)
        self._values.update(values.astype(values.dtype.newbyteorder("<")).tobytes())


def _remains(store: Store) -> str:
    rows = {name: store.rows(name) for name in TABLES}
    found = ", ".join(f"{count:,} rows of {name}" for name, count in rows.items() if count)
    if not found:
        return "not a result (no status.json, no tables); name a folder that --out wrote"
    return (
        f"this run died before it ended (no status.json) and left {found}; "
        "run it again, or read those files with pandas"
    )
