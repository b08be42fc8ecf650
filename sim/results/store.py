"""Where a result lies: a folder of Parquet and JSON files, or memory, behind one protocol."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from fleetsim.sim.results.schema import TABLES
from fleetsim.traces.errors import InputError

_PARTED = frozenset({"requests", "timeline", "decisions"})


class Store(Protocol):
    """What the recorder writes and a result reads."""

    def append(self, table: str, rows: pa.Table) -> None:
        """Add rows to a table of `TABLES`; what was appended before stays as it is."""

    def parts(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The table's rows in the order written, piece by piece, all columns or those named."""

    def rows(self, table: str) -> int:
        """How many rows the table has."""

    def write_text(self, name: str, text: str) -> None:
        """Keep a text file under this name."""

    def read_text(self, name: str) -> str | None:
        """The text kept under this name, or None."""


class MemoryStore:
    """A result that lives as long as the process."""

    def __init__(self) -> None:
        self._tables: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        self._texts: dict[str, str] = {}

    def append(self, table: str, rows: pa.Table) -> None:
        """Add rows to a table."""
        self._tables[table].append(rows)

    def parts(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The table's pieces in the order written."""
        for part in self._tables[table]:
            yield part if columns is None else part.select(list(columns))

    def rows(self, table: str) -> int:
        """How many rows the table has."""
        return sum(part.num_rows for part in self._tables[table])

    def write_text(self, name: str, text: str) -> None:
        """Keep a text under this name."""
        self._texts[name] = text

    def read_text(self, name: str) -> str | None:
        """The text kept under this name, or None."""
        return self._texts.get(name)


class FolderStore:
    """A result folder. Each file appears whole, by an atomic rename, or not at all.

    `requests`, `timeline` and `decisions` are folders of numbered parts; the other tables are
    one file each. The same rows give the same bytes under the same pyarrow version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path) -> FolderStore:
        """Make a new result folder.

        Raises:
            InputError: when something other than an empty folder is there already.
            OSError: when the folder cannot be made.
        """
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: is a file; a result needs the path of a new folder")
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(
                f"{folder}: this folder is not empty; name a new one, or remove it first"
            )
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    def append(self, table: str, rows: pa.Table) -> None:
        """Write rows as the table's next part, or as its only file.

        Raises:
            OSError: with the file's name, when it cannot be written; nothing of it is left.
        """
        if table in _PARTED:
            folder = self.folder / table
            folder.mkdir(exist_ok=True)
            path = folder / f"part-{len(self._files(table)) + 1:05d}.parquet"
        else:
            path = self.folder / f"{table}.parquet"
        self._replace(path, memoryview(_parquet_bytes(rows)))

    def parts(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The table's parts in the order written.

        Raises:
            InputError: when a file is not readable as Parquet or lacks a column.
        """
        for path in self._files(table):
            yield _read_parquet(path, TABLES[table].names if columns is None else list(columns))

    def rows(self, table: str) -> int:
        """How many rows the table has, from the files' footers.

        Raises:
            InputError: when a file is not readable as Parquet.
        """
        return sum(_footer_rows(path) for path in self._files(table))

    def write_text(self, name: str, text: str) -> None:
        """Write a text file.

        Raises:
            OSError: with the file's name, when it cannot be written; nothing of it is left.
        """
        self._replace(self.folder / name, memoryview(text.encode()))

    def read_text(self, name: str) -> str | None:
        """The text file's content, or None if there is none.

        Raises:
            InputError: when it is not UTF-8 text.
        """
        path = self.folder / name
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 text; the result folder is damaged") from error

    def _files(self, table: str) -> list[Path]:
        if table in _PARTED:
            return sorted((self.folder / table).glob("part-*.parquet"))
        path = self.folder / f"{table}.parquet"
        return [path] if path.is_file() else []

    def _replace(self, path: Path, content: memoryview) -> None:
        half_written = path.with_name(f".{path.name}.tmp")
        try:
            half_written.write_bytes(content)
            os.replace(half_written, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                half_written.unlink()
            raise OSError(error.errno, error.strerror, str(path)) from error


def _parquet_bytes(rows: pa.Table) -> pa.Buffer:
    # Dictionaries only where values repeat: for times they cost more time and more bytes.
    strings = [f.name for f in rows.schema if pa.types.is_string(f.type) and f.name != "session"]
    floats = [f.name for f in rows.schema if pa.types.is_float64(f.type)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=strings,
        use_byte_stream_split=floats,
        write_statistics=False,
    )
    return sink.getvalue()


def _read_parquet(path: Path, columns: list[str]) -> pa.Table:
    try:
        return pq.ParquetFile(path).read(columns, use_threads=False).select(columns)
    except (pa.ArrowException, OSError, KeyError) as error:
        first_line = str(error).splitlines()[0]
        raise InputError(f"{path}: not a table of this result ({first_line})") from error


def _footer_rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a Parquet file; the result folder is damaged") from error


def read_json(store: Store, name: str) -> dict[str, Any] | None:
    """The JSON object kept under this name, or None if there is none.

    Raises:
        InputError: when it is not a JSON object.
    """
    text = store.read_text(name)
    if text is None:
        return None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name}: line {error.lineno}: broken JSON; the result folder is damaged"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{name}: not a JSON object; the result folder is damaged")
    return content


def write_json(store: Store, name: str, content: dict[str, Any]) -> None:
    """Keep a JSON object under this name: strict JSON, the keys in the order given.

    Raises:
        ValueError: when it holds NaN or an infinity.
    """
    store.write_text(name, json.dumps(content, indent=2, allow_nan=False) + "\n")
