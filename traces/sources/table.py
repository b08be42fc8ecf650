"""Rows of a file as named columns that know their line numbers, and checked conversions.

Every conversion is one vectorised pass; only when it fails are the rows searched one by one, to
name the first bad one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Categorical, FloatArray, IntArray

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of equal length as Arrow arrays.

    Attributes:
        path: of the file, for error messages.
        columns: by name.
        line_numbers: 1-based line in the file (in Parquet: row) of each row.
        is_text: numbers are still text, as in CSV; elsewhere text in a number is an error.
    """

    path: Path
    columns: Mapping[str, pa.Array]
    line_numbers: IntArray
    is_text: bool

    def __len__(self) -> int:
        return len(self.line_numbers)

    def error(self, row: int, text: str) -> InputError:
        """Make an error that names the file and the row."""
        return row_error(self.path, int(self.line_numbers[row]), text)

    def integers(
        self, name: str, *, low: int, high: int = _INT32_MAX, null: int | None = None
    ) -> IntArray:
        """Convert a column to whole numbers.

        Args:
            name: of the column.
            low: smallest right value.
            high: largest right value.
            null: what an empty cell becomes; None makes it an error.

        Raises:
            InputError: text, a fraction, NaN, or a number outside [low, high].
        """
        wanted = f"a whole number of at least {low}"
        column = self._filled(name, wanted, required=null is None)
        try:
            numbers = pc.cast(column, pa.int64())
        except pa.ArrowInvalid:  # "12.0" and 12.0 are whole numbers too
            numbers = self._numbers(name, column, wanted)
            whole = pc.equal(numbers, pc.round(numbers))
            inside = pc.less(pc.abs(numbers), 2.0**53)
            self._require(name, pc.and_(whole, inside), wanted)
            numbers = pc.cast(numbers, pa.int64())
        self._require(name, pc.greater_equal(numbers, low), wanted)
        self._require(name, pc.less_equal(numbers, high), f"a whole number of at most {high}")
        filled = numbers if null is None else pc.fill_null(numbers, null)
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)

    def seconds(self, name: str, *, optional: bool = False) -> FloatArray:
        """Convert a column to finite numbers of at least 0.

        Args:
            name: of the column.
            optional: an empty cell becomes NaN; otherwise it is an error.

        Raises:
            InputError: text, NaN, infinity, a negative number, an empty cell if not optional.
        """
        wanted = "seconds of at least 0"
        numbers = self._numbers(name, self._filled(name, wanted, required=not optional), wanted)
        right = pc.and_(pc.is_finite(numbers), pc.greater_equal(numbers, 0.0))
        self._require(name, right, wanted)
        filled = pc.fill_null(numbers, np.nan) if optional else numbers
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64)

    def labels(self, name: str) -> Categorical:
        """Convert a column of names; an empty cell is an unknown one."""
        column = self.columns[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not (_is_string(column.type) or pa.types.is_integer(column.type)):
            column = self._untyped(name, column, "text")
        encoded = pc.dictionary_encode(_blank_to_null(pc.cast(column, pa.string())))
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        return Categorical(codes.astype(np.int32), tuple(encoded.dictionary.to_pylist()))

    def _filled(self, name: str, wanted: str, *, required: bool) -> pa.Array:
        column = self.columns[name]
        if _is_string(column.type):
            column = _blank_to_null(column)
            if not self.is_text:
                self._require(name, pc.is_null(column), wanted)
        elif not _is_number(column.type):
            column = self._untyped(name, column, wanted)
        if required:
            self._require(name, pc.is_valid(column), wanted)
        return column

    def _numbers(self, name: str, column: pa.Array, wanted: str) -> pa.Array:
        try:
            return pc.cast(column, pa.float64(), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise self._first_unfit(name, column, pa.float64(), wanted) from None

    def _untyped(self, name: str, column: pa.Array, wanted: str) -> pa.Array:
        """Let an all-empty column pass as nulls, refuse any other of a wrong type."""
        if column.null_count == len(column):
            return pa.nulls(len(column), pa.string())
        row = int(np.argmax(pc.is_valid(column).to_numpy(zero_copy_only=False)))
        raise self.error(row, f"{name} is {column[row].as_py()!r}; must be {wanted}")

    def _first_unfit(
        self, name: str, column: pa.Array, target: pa.DataType, wanted: str
    ) -> InputError:
        for row in range(len(column)):
            try:
                pc.cast(column[row : row + 1], target)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return self.error(row, f"{name} is {column[row].as_py()!r}; must be {wanted}")
        return InputError(f"{self.path}: column {name}: must be {wanted}")

    def _require(self, name: str, right: pa.Array, wanted: str) -> None:
        """Refuse the first row whose check is False; a null check (an empty cell) passes."""
        wrong = np.flatnonzero(~pc.fill_null(right, True).to_numpy(zero_copy_only=False))
        if len(wrong):
            row = int(wrong[0])
            value = self.columns[name][row].as_py()
            raise self.error(row, f"{name} is {self._shown(value)}; must be {wanted}")

    def _shown(self, value: object) -> str:
        if value is None or value == "":
            return "empty"
        return str(value) if self.is_text else repr(value)  # here a cell of text is a number


def row_error(path: Path, line: int, text: str) -> InputError:
    """Make an error that names the file and the 1-based line."""
    return InputError(f"{path}: row {line}: {text}")


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _blank_to_null(column: pa.Array) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)
