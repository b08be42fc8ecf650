"""OpenTelemetry spans of LLM calls: OTLP JSON as the collector's file exporter writes it.

Each line holds ``resourceSpans``; attribute names are those of the gen_ai conventions, older names
included (vLLM's own spans still have ``gen_ai.usage.prompt_tokens``). A request is a span that
generates text. One request may have several: in the client, in a gateway and in the engine. The
outermost served one with token counts is kept, as its start is when the request came; the ones
inside it are dropped as ``nested``. Arrival is ``startTimeUnixNano``. Prompts and answers in
attributes are never looked at.

Spans are in no order, and a parent may come after its child, so ids of all spans are held in
memory (about 200 bytes each) until the file ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.log_rows import FAILED, NO_USAGE, LogRows, first_of
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows
from fleetsim.traces.sources.table import row_error

NOT_GENERATION = "not_generation"
NESTED = "nested"
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_GENERATES = ("chat", "text_completion", "generate_content")
_WANTED = (
    *_INPUT,
    *_OUTPUT,
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.request.max_tokens",
    "gen_ai.conversation.id",
    "session.id",
    "error.type",
)
_STATUS_ERROR = (2, "2", "STATUS_CODE_ERROR")


def _read(content: Content, layout: Layout) -> Rows:
    rows = LogRows(content, "startTimeUnixNano", unique_ids=True)
    parents: dict[tuple[Any, Any], Any] = {}
    generating: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
    for line, span in _spans(content):
        key = (span.get("traceId"), span.get("spanId"))
        parents[key] = span.get("parentSpanId")
        values = _attributes(content, line, span)
        operation = values.get("gen_ai.operation.name")
        counted = first_of(values, (*_INPUT, *_OUTPUT)) is not None
        if operation in _GENERATES or (operation is None and counted):
            told = ("traceId", "spanId", "parentSpanId", "startTimeUnixNano", "status")
            generating.append((line, {name: span.get(name) for name in told}, values))
        else:
            rows.drop(NOT_GENERATION)
    outer = {
        (span["traceId"], span["spanId"])
        for _, span, values in generating
        if not _has_failed(span, values)
        and first_of(values, _INPUT) is not None
        and first_of(values, _OUTPUT) is not None
    }
    for line, span, values in generating:
        if _is_nested(span, parents, outer):
            rows.drop(NESTED)
        else:
            _add(rows, line, span, values)
    return rows.rows("startTimeUnixNano")


def _add(rows: LogRows, line: int, span: dict[str, Any], values: dict[str, Any]) -> None:
    prompt = rows.first_whole(line, values, _INPUT)
    output = rows.first_whole(line, values, _OUTPUT)
    if _has_failed(span, values):
        rows.drop(FAILED)
    elif prompt is None or output is None:
        rows.drop(NO_USAGE)
    else:
        name = "gen_ai.request.max_tokens"
        trace_id, span_id = span["traceId"], span["spanId"]
        rows.add(
            line,
            span["startTimeUnixNano"],
            prompt,
            output,
            max_tokens=rows.whole(line, name, values.get(name)),
            request_id=f"{trace_id}/{span_id}" if span_id else None,
            model=first_of(values, ("gen_ai.request.model", "gen_ai.response.model")),
            session=first_of(values, ("gen_ai.conversation.id", "session.id")),
        )


def _has_failed(span: dict[str, Any], values: dict[str, Any]) -> bool:
    status = span["status"]
    code = status.get("code") if isinstance(status, dict) else None
    return code in _STATUS_ERROR or "error.type" in values


def _is_nested(
    span: dict[str, Any], parents: dict[tuple[Any, Any], Any], outer: set[tuple[Any, Any]]
) -> bool:
    trace_id, above = span["traceId"], span["parentSpanId"]
    seen = {span["spanId"]}
    while above and above not in seen:
        if (trace_id, above) in outer:
            return True
        seen.add(above)
        above = parents.get((trace_id, above))
    return False


def _spans(content: Content) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, row in read_objects(content):
        for resource in _items(content, line, row, "resourceSpans"):
            for scope in _items(content, line, resource, "scopeSpans"):
                for span in _items(content, line, scope, "spans"):
                    yield line, span


def _items(content: Content, line: int, holder: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = holder.get(name) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise row_error(content.path, line, f"{name} must be a list of objects, as in OTLP JSON")
    return items


def _attributes(content: Content, line: int, span: dict[str, Any]) -> dict[str, Any]:
    """Pick the attributes that matter; OTLP writes whole numbers as text or as numbers."""
    values: dict[str, Any] = {}
    for item in _items(content, line, span, "attributes"):
        name, value = item.get("key"), item.get("value")
        if name in _WANTED and isinstance(value, dict) and len(value) == 1:
            (values[name],) = value.values()
    return values


OTEL = TraceFormat(
    name="otel",
    about="OpenTelemetry gen_ai spans, OTLP JSON",
    kinds=("JSONL",),
    required=("resourceSpans",),
    optional=(),
    read=_read,
    ignores_others=True,
)
