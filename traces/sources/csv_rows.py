"""CSV as batches of text columns with exact line numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.table import Table, row_error

_BATCH_BYTES = 1 << 23


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """The first row that is not blank.

    Attributes:
        columns: names, stripped.
        line: its 1-based line number.
    """

    columns: tuple[str, ...]
    line: int


def read_header(content: Content) -> CsvHeader:
    """Read the header from the head of the file; the stream is not moved.

    Raises:
        InputError: two columns of the same name.
    """
    lines = re.split(r"\r\n|\n|\r", content.head.decode("utf-8-sig", errors="replace"))
    number, line = next((n, text) for n, text in enumerate(lines, 1) if text.strip())
    try:
        columns = tuple(name.strip() for name in next(csv.reader([line])))
    except csv.Error as error:
        raise row_error(content.path, number, f"is no CSV header ({error})") from None
    for name in columns:
        if columns.count(name) > 1:
            raise row_error(content.path, number, f"column {name!r} occurs twice; name it once")
    return CsvHeader(columns, number)


def read_batches(content: Content, header: CsvHeader) -> Iterator[Table]:
    """Read the rows below the header, some thousands at a time; blank rows are skipped.

    Raises:
        InputError: a row with too few or too many cells, text that is not UTF-8.
    """
    ragged: list[pyarrow.csv.InvalidRow] = []

    def keep(row: pyarrow.csv.InvalidRow) -> str:
        ragged.append(row)
        return "skip"

    line = header.line
    try:
        batches = pyarrow.csv.open_csv(
            content.stream,
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False,  # else Arrow does not know row numbers
                block_size=_BATCH_BYTES,
                column_names=list(header.columns),
                skip_rows=header.line,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                ignore_empty_lines=False,  # they count as lines; dropped below
                invalid_row_handler=keep,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.string() for name in header.columns},
                strings_can_be_null=False,
            ),
        )
        for batch in batches:
            _refuse_ragged(content, ragged)
            yield _table(content, batch, line)
            line += len(batch)
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return  # nothing but a header
        reason = str(error).splitlines()[0]
        raise content.error(f"is not a readable CSV after row {line}: {reason}") from None
    _refuse_ragged(content, ragged)


def _table(content: Content, batch: pa.RecordBatch, lines_before: int) -> Table:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    line_numbers = np.arange(lines_before + 1, lines_before + 1 + len(batch))
    blank = None
    for column in columns.values():
        empty = pc.equal(pc.binary_length(column), 0)
        blank = empty if blank is None else pc.and_(blank, empty)
    filled = pc.invert(blank)
    if not pc.all(filled).as_py():
        columns = {name: column.filter(filled) for name, column in columns.items()}
        line_numbers = line_numbers[filled.to_numpy(zero_copy_only=False)]
    return Table(content.path, columns, line_numbers, is_text=True)


def _refuse_ragged(content: Content, ragged: list[pyarrow.csv.InvalidRow]) -> None:
    if ragged:
        row = ragged[0]
        raise row_error(
            content.path,
            row.number,
            f"{row.actual_columns} cells; must be {row.expected_columns}, as in the header",
        )
