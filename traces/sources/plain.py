"""The plain format: the common schema's own columns as CSV, JSON Lines or Parquet.

``docs/traces.md`` describes it. Three columns are needed; any column that the format does not know
is an error, so that a misspelt one is not silently left out.
"""

from __future__ import annotations

import difflib
from array import array
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Categorical, IntArray
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import read_batches
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.parents import find_parents
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Chains, Rows
from fleetsim.traces.sources.table import Table, row_error

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
OPTIONAL = (
    "request_id",
    "max_tokens",
    "session",
    "turn",
    "parent_turn",
    "parent",
    "think_s",
    "tenant",
    "model",
    "priority",
    "slo_class",
    "adapter",
    "kind",
    "block_ids",
    "block_tokens",
    "source_row",
)
_KNOWN = (*REQUIRED, *OPTIONAL)
_LABELS = ("request_id", "session", "tenant", "model", "slo_class", "adapter", "kind")
_CHAIN_TEXT = r"^\s*(\[\s*(\d+(\s*,\s*\d+)*)?\s*\]|\d+(\s+\d+)*)?\s*$"
_CHAIN_RIGHT = "a list of block ids between 0 and 2**64 - 1"


def _read(content: Content, layout: Layout) -> Rows:
    for name in layout.columns:
        _refuse_unknown(content, name)
    if layout.kind == "CSV":
        table = _from_csv(content, layout)
    elif layout.kind == "JSONL":
        table = _from_jsonl(content)
    else:
        table = _from_parquet(content, layout)
    return _rows(table)


def _refuse_unknown(content: Content, name: str, line: int | None = None) -> None:
    if name in _KNOWN:
        return
    near = difflib.get_close_matches(name, _KNOWN, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    text = f"unknown column {name!r}; {hint}the plain format has {', '.join(_KNOWN)}"
    raise content.error(text) if line is None else row_error(content.path, line, text)


def _from_csv(content: Content, layout: Layout) -> Table:
    assert layout.header is not None
    batches = list(read_batches(content, layout.header))
    lines = [table.line_numbers for table in batches]
    columns = {
        name: pa.concat_arrays([table.columns[name] for table in batches] or [pa.array([], "str")])
        for name in layout.columns
    }
    line_numbers = np.concatenate(lines) if lines else np.zeros(0, np.int64)
    return Table(content.path, columns, line_numbers, is_text=True)


def _from_jsonl(content: Content) -> Table:
    lines = array("q")
    values: dict[str, list[Any]] = {}
    for line, row in read_objects(content):
        for name, value in row.items():
            if name not in values:
                _refuse_unknown(content, name, line)
                values[name] = [None] * len(lines)
            values[name].append(value)
        lines.append(line)
        if len(row) < len(values):
            for column in values.values():
                if len(column) < len(lines):
                    column.append(None)
    columns = {name: _arrow(content, name, column, lines) for name, column in values.items()}
    return Table(content.path, columns, np.array(lines, dtype=np.int64), is_text=False)


def _arrow(content: Content, name: str, values: list[Any], lines: array[int]) -> pa.Array:
    """Type a column of JSON values; the wrong type is named by row."""
    if name == "block_ids":
        right, kinds = _CHAIN_RIGHT, {list, type(None)}
    elif name in _LABELS:
        right, kinds = "text", {str, int, type(None)}
    else:
        right, kinds = "a number", {int, float, type(None)}
    if not set(map(type, values)) <= kinds:
        row = next(row for row, value in enumerate(values) if type(value) not in kinds)
        shown = "a list" if isinstance(values[row], list) else repr(values[row])
        raise row_error(content.path, lines[row], f"{name} is {shown}; must be {right}")
    if name in _LABELS:
        values = [None if value is None else str(value) for value in values]
    try:
        if name == "block_ids":
            return pa.array(values, pa.list_(pa.uint64()))
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        for row, value in enumerate(values):
            try:
                pa.array([value], pa.list_(pa.uint64()) if name == "block_ids" else None)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
                text = f"{name} must be {right}"
                raise row_error(content.path, lines[row], text) from None
        raise


def _from_parquet(content: Content, layout: Layout) -> Table:
    table: pa.Table = layout.table
    columns = {}
    for name in layout.columns:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # newer Arrow keeps an empty one chunked
            column = pa.concat_arrays(column.chunks) if column.num_chunks else None
        columns[name] = pa.array([], table.schema.field(name).type) if column is None else column
    return Table(content.path, columns, np.arange(1, table.num_rows + 1), is_text=False)


def _rows(table: Table) -> Rows:
    prompt_tokens = table.integers("prompt_tokens", low=1)
    _refuse_duplicate_ids(table)

    def optional(name: str, low: int, high: int, null: int) -> IntArray | None:
        if name not in table.columns:
            return None
        values = table.integers(name, low=low, high=high, null=null)
        return None if bool((values == null).all()) else values

    def labels(name: str) -> Categorical | None:
        if name not in table.columns:
            return None
        column = table.labels(name)
        return column if column.names else None

    source_row = None
    if "source_row" in table.columns:
        source_row = table.integers("source_row", low=0, high=2**62)
    turn = optional("turn", 0, 2**31 - 1, null=-1)
    session = labels("session")
    parent, think_s = find_parents(table, session, turn)
    return Rows(
        stamps=table.seconds("arrival_s"),
        ticks_per_s=1,
        prompt_tokens=prompt_tokens,
        output_tokens=table.integers("output_tokens", low=0),
        line_numbers=table.line_numbers,
        chains=_chains(table, prompt_tokens),
        max_tokens=optional("max_tokens", 1, 2**31 - 1, null=0),
        turn=turn,
        priority=optional("priority", -(2**15), 2**15 - 1, null=0),
        session=session,
        tenant=labels("tenant"),
        model=labels("model"),
        slo_class=labels("slo_class"),
        adapter=labels("adapter"),
        kind=labels("kind"),
        parent=parent,
        think_s=think_s,
        source_row=source_row,
    )


def _refuse_duplicate_ids(table: Table) -> None:
    if "request_id" not in table.columns:
        return
    codes = table.labels("request_id").codes
    known = np.flatnonzero(codes >= 0)
    order = known[np.argsort(codes[known], kind="stable")]
    repeats = np.flatnonzero(codes[order][1:] == codes[order][:-1]) + 1
    if len(repeats) == 0:
        return
    row = int(order[repeats].min())
    first = int(np.argmax(codes == codes[row]))
    raise table.error(
        row,
        f"request_id {table.columns['request_id'][row].as_py()!r} was used in row "
        f"{table.line_numbers[first]}; each id must occur once",
    )


def _chains(table: Table, prompt_tokens: IntArray) -> Chains | None:
    if "block_ids" not in table.columns:
        return None
    lists = _id_lists(table)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    lengths = lengths.astype(np.int64)
    block_tokens = _block_tokens(table)
    if block_tokens is None:
        if lengths.any():
            raise InputError(
                f"{table.path}: column block_ids needs block_tokens, how many tokens one id covers "
                "(such as 64), in the same row or any other"
            )
        return None
    whole, rest = np.divmod(prompt_tokens, block_tokens)
    started = whole + (rest > 0)
    wrong = np.flatnonzero((lengths > 0) & (lengths != whole) & (lengths != started))
    if len(wrong):
        row = int(wrong[0])
        raise table.error(
            row,
            f"{lengths[row]} block_ids for prompt_tokens {prompt_tokens[row]}; must be "
            f"{started[row]} blocks of {block_tokens} tokens (or {whole[row]} without the last, "
            "partial one)",
        )
    ids = lists.flatten()
    try:
        ids = pc.cast(ids, pa.uint64())
    except pa.ArrowInvalid:
        ids = None
    if ids is None or ids.null_count:
        raise _first_bad_chain(table, lists)
    return Chains(lengths, np.asarray(ids.to_numpy(zero_copy_only=False)), block_tokens)


def _id_lists(table: Table) -> pa.Array:
    column = table.columns["block_ids"]
    if not table.is_text:
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), pa.list_(pa.uint64()))
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        if is_list and pa.types.is_integer(column.type.value_type):
            return column
        raise InputError(f"{table.path}: column block_ids is {column.type}; must be {_CHAIN_RIGHT}")
    right = pc.match_substring_regex(column, _CHAIN_TEXT)
    if not pc.all(right).as_py():
        row = int(np.argmin(right.to_numpy(zero_copy_only=False)))
        text = "block_ids must be ids separated by spaces, or a JSON list of ids"
        raise table.error(row, text)
    spaced = pc.utf8_trim_whitespace(pc.replace_substring_regex(column, r"[\[\],\s]+", " "))
    filled = pc.if_else(pc.equal(spaced, ""), pa.scalar(None, pa.string()), spaced)
    return pc.split_pattern(filled, " ")


def _first_bad_chain(table: Table, lists: pa.Array) -> InputError:
    for row in range(len(lists)):
        try:
            ids = pc.cast(lists[row : row + 1].flatten(), pa.uint64())
        except pa.ArrowInvalid:
            return table.error(row, f"block_ids must be {_CHAIN_RIGHT}")
        if ids.null_count:
            return table.error(row, f"block_ids holds an empty id; must be {_CHAIN_RIGHT}")
    return InputError(f"{table.path}: column block_ids: must be {_CHAIN_RIGHT}")


def _block_tokens(table: Table) -> int | None:
    """Find the one size that the rows state; blank where a row says nothing."""
    if "block_tokens" not in table.columns:
        return None
    values = table.integers("block_tokens", low=1, null=0)
    stated = np.flatnonzero(values)
    if len(stated) == 0:
        return None
    first = int(values[stated[0]])
    other = stated[values[stated] != first]
    if len(other):
        row = int(other[0])
        raise table.error(row, f"block_tokens is {values[row]}; must be {first} as in other rows")
    return first


PLAIN = TraceFormat(
    name="plain",
    about="fleetsim's own columns",
    kinds=("CSV", "JSONL", "Parquet"),
    required=REQUIRED,
    optional=OPTIONAL,
    read=_read,
)
