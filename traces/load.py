"""Read a trace from a file: recognise its format by its content, never by its name."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fleetsim.traces.assemble import assemble
from fleetsim.traces.errors import InputError
from fleetsim.traces.parquet import decode_metadata
from fleetsim.traces.schema import Trace, TraceMetadata
from fleetsim.traces.sources.content import HEAD_BYTES, Content, open_content
from fleetsim.traces.sources.csv_rows import read_header
from fleetsim.traces.sources.formats import FORMATS as FORMATS
from fleetsim.traces.sources.jsonl_rows import is_list, read_first, read_head, scan_object
from fleetsim.traces.sources.known import KNOWN_FILES
from fleetsim.traces.sources.plain import PLAIN
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows


def load_trace(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    arrivals_s: npt.ArrayLike | None = None,
) -> Trace:
    """Read a trace.

    Every row is kept, or dropped under a name in ``metadata.rows_dropped``; lengths are never
    changed. gz and zst files are read as they are.

    Args:
        path: of the file.
        format: a name of :data:`FORMATS`; None recognises it by the columns.
        arrivals_s: seconds at which the rows of the file arrive, for a file that does not say;
            one per row, in its order.

    Raises:
        InputError: one line that names the file, the row or column, what is wrong with it and
            what would be right.
    """
    with open_content(path) as content:
        layout = read_layout(content)
        chosen = choose_format(content, layout, format)
        rows = _with_arrivals(content, chosen.read(content, layout), arrivals_s)
        trace = assemble(rows, content, chosen.name)
        stored = None
        if layout.table is not None:
            stored = decode_metadata(content.path, layout.table.schema.metadata)
    return _with_origin(content, trace, stored)


def read_parquet(path: str | os.PathLike[str]) -> Trace:
    """Read what :meth:`Trace.to_parquet` wrote.

    Raises:
        InputError: not such a file.
    """
    return load_trace(path, format=PLAIN.name)


def read_layout(content: Content) -> Layout:
    """Look at a file from outside; the stream is not moved, save for Parquet.

    Raises:
        InputError: neither CSV nor JSON nor Parquet.
    """
    if content.head.startswith(b"PAR1"):
        try:
            table = pq.read_table(pa.BufferReader(content.stream.read()))
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise content.error(f"is a damaged Parquet file ({reason}); write it again") from None
        return Layout("Parquet", tuple(table.column_names), table=table)
    text = content.head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"{", b"[")):
        if is_list(content):
            first = read_first(content)
            return Layout("JSONL", tuple(first), rows=(first,))
        try:
            rows = read_head(content)
        except InputError:
            first = scan_object(text.decode(errors="ignore"))
            layout = Layout("JSON", tuple(first), rows=(first,))
            if not any(form.has_columns(layout) for form in FORMATS.values()):
                raise
            return layout
        if len(content.head) == HEAD_BYTES and b"\n" not in content.head.lstrip():
            rows = (read_first(content),)  # one longer than the head: a prompt, a session
        return Layout("JSONL", tuple(rows[0]), rows=rows)
    header = read_header(content)
    return Layout("CSV", header.columns, header=header)


def choose_format(content: Content, layout: Layout, name: str | None) -> TraceFormat:
    """Find the one format that a file fits.

    Raises:
        InputError: none, more than one, or not the named one.
    """
    if name is not None:
        if name not in FORMATS:
            raise InputError(f"unknown trace format {name!r}; known are {', '.join(FORMATS)}")
        _refuse_misfit(content, layout, FORMATS[name])
        return FORMATS[name]
    found = [
        form for form in FORMATS.values() if form.has_columns(layout) and form.recognise(layout)
    ]
    # a format with a place for every column goes before one that would refuse some
    fitting = [form for form in found if not form.unknown_columns(layout)] or found
    names = {form.name for form in fitting}
    fitting = [form for form in fitting if not names & set(form.within)]
    if len(fitting) == 1:
        _refuse_misfit(content, layout, fitting[0])
        return fitting[0]
    shown = ",".join(layout.columns)
    shown = shown if len(shown) <= 200 else shown[:200] + "..."
    for form in FORMATS.values():
        named = layout.kind in form.kinds and set(form.required) <= set(layout.columns)
        if named and form.any_of and not fitting:
            _refuse_misfit(content, layout, form)  # an access log without token counts
    if fitting:
        described = " and ".join(f"{form.name}, {form.about}" for form in fitting)
        raise content.error(f"its columns {shown} fit {described}; say which with format=")
    known = ", ".join(FORMATS)
    # plain comes first where none is near: it is what to convert to
    nearest = max((PLAIN, *FORMATS.values()), key=lambda form: _overlap(form, layout))
    raise content.error(
        f"unknown layout: {layout.kind} with columns {shown}; known formats are {known}; the "
        f"nearest is {nearest.describe()}"
    )


def _overlap(form: TraceFormat, layout: Layout) -> float:
    return len(set(form.required) & set(layout.columns)) / len(form.required)


def _refuse_misfit(content: Content, layout: Layout, form: TraceFormat) -> None:
    if layout.kind not in form.kinds:
        raise content.error(f"is {layout.kind}; must be {form.describe()}")
    missing = [name for name in form.required if name not in layout.columns]
    if missing:
        shown = ",".join(layout.columns)
        raise content.error(f"lacks column {missing[0]!r} (has {shown}); must be {form.describe()}")
    for names in form.any_of:
        if not set(names).intersection(layout.columns):
            raise content.error(
                f"is {form.name} without token counts; needs one of {', '.join(names)} "
                "(docs/traces-own.md)"
            )
    extra = form.unknown_columns(layout)
    if extra and not form.checks_columns:
        raise content.error(f"unknown column {extra[0]!r}; must be {form.describe()}")


def _with_arrivals(content: Content, rows: Rows, arrivals_s: npt.ArrayLike | None) -> Rows:
    if rows.has_arrivals:
        if arrivals_s is not None:
            raise content.error("says when requests arrive; leave arrivals_s out")
        return rows
    if arrivals_s is None:
        raise content.error(
            "does not say when requests arrive, and a trace must: give load_trace(..., "
            f"arrivals_s=...), {len(rows)} times in seconds"
        )
    try:
        stamps = np.asarray(arrivals_s, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("arrivals_s: must be numbers, seconds") from None
    if stamps.shape != (len(rows),):
        raise content.error(f"has {len(rows)} rows; arrivals_s is of shape {stamps.shape}")
    if not bool(np.isfinite(stamps).all()) or bool((stamps < 0).any()):
        raise InputError("arrivals_s: must be finite and at least 0")
    return dataclasses.replace(rows, stamps=stamps, ticks_per_s=1, has_arrivals=True)


def _with_origin(content: Content, trace: Trace, stored: TraceMetadata | None) -> Trace:
    """Put in what is known of the origin: stored with the file, or by its hash."""
    if stored is not None:
        held = (len(trace), trace.metadata.block_tokens)
        said = (stored.rows_kept, stored.block_tokens)
        if held != said:
            raise content.error(
                f"holds (requests, block_tokens) {held}, but its metadata says {said}; write it "
                "again with Trace.to_parquet"
            )
        return dataclasses.replace(trace, metadata=stored)
    known = KNOWN_FILES.get(trace.metadata.sha256 or "")
    if known is None:
        return trace
    return dataclasses.replace(
        trace,
        metadata=dataclasses.replace(
            trace.metadata, source_name=known.name, licence=known.licence, url=known.url
        ),
    )
