"""Read a trace from a file: recognise its format by its content, never by its name."""

from __future__ import annotations

import dataclasses
import os

import pyarrow as pa
import pyarrow.parquet as pq

from fleetsim.traces.assemble import assemble
from fleetsim.traces.errors import InputError
from fleetsim.traces.parquet import decode_metadata
from fleetsim.traces.schema import Trace, TraceMetadata
from fleetsim.traces.sources.access_log import ENVOY, NGINX
from fleetsim.traces.sources.azure import AZURE
from fleetsim.traces.sources.content import Content, open_content
from fleetsim.traces.sources.csv_rows import read_header
from fleetsim.traces.sources.jsonl_rows import read_first
from fleetsim.traces.sources.known import KNOWN_FILES
from fleetsim.traces.sources.litellm import LITELLM
from fleetsim.traces.sources.mooncake import MOONCAKE
from fleetsim.traces.sources.openai_log import OPENAI
from fleetsim.traces.sources.otel import OTEL
from fleetsim.traces.sources.plain import PLAIN
from fleetsim.traces.sources.registry import Layout, TraceFormat

FORMATS: dict[str, TraceFormat] = {
    form.name: form for form in (AZURE, MOONCAKE, PLAIN, LITELLM, ENVOY, NGINX, OTEL, OPENAI)
}
"""The formats that :func:`load_trace` reads, by name."""


def load_trace(path: str | os.PathLike[str], *, format: str | None = None) -> Trace:
    """Read a trace.

    Every row is kept, or dropped under a name in ``metadata.rows_dropped``; lengths are never
    changed. gz and zst files are read as they are.

    Args:
        path: of the file.
        format: a name of :data:`FORMATS`; None recognises it by the columns.

    Raises:
        InputError: one line that names the file, the row or column, what is wrong with it and
            what would be right.
    """
    with open_content(path) as content:
        layout = read_layout(content)
        chosen = choose_format(content, layout, format)
        trace = assemble(chosen.read(content, layout), content, chosen.name)
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
        first = read_first(content)
        return Layout("JSONL", tuple(first), first=first)
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
    found = [form for form in FORMATS.values() if form.fits(layout)]
    if len(found) == 1:
        _refuse_misfit(content, layout, found[0])
        return found[0]
    shown = ",".join(layout.columns)
    shown = shown if len(shown) <= 200 else shown[:200] + "..."
    for form in FORMATS.values():
        logs_this = form.any_of and layout.kind in form.kinds
        if logs_this and not found and set(form.required) <= set(layout.columns):
            _refuse_misfit(content, layout, form)  # an access log without token counts
    known = "; ".join(form.describe() for form in FORMATS.values() if not form.ignores_others)
    logs = ", ".join(form.name for form in FORMATS.values() if form.ignores_others)
    known = f"{known}; and logs ({logs}: docs/traces-own.md)"
    if found:
        names = " and ".join(form.name for form in found)
        raise content.error(f"its columns {shown} fit {names}; must fit one of {known}")
    raise content.error(f"unknown layout: {layout.kind} with columns {shown}; known are {known}")


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
    if form is PLAIN or form.ignores_others:
        return  # plain names the nearest right column itself
    extra = [name for name in layout.columns if name not in (*form.required, *form.optional)]
    if extra:
        raise content.error(f"unknown column {extra[0]!r}; must be {form.describe()}")


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
