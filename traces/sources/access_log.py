"""JSON access logs of Envoy and nginx that carry token counts.

Envoy AI Gateway puts the counts into ``io.envoy.ai_gateway`` metadata; what they are called in the
log is the operator's choice, so each column has the names of the gateway's default log, of its
documentation, and plain ones. nginx knows no tokens: ``docs/traces-own.md`` has a log_format that
takes them from the answer's headers.

Both write a line when a request has ended, so lines are in order of their ends. Envoy's
``start_time`` is the arrival; in nginx it is ``msec`` (time of the log line) less
``request_time``. The path decides what is an LLM request, addresses and user agents are never
looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.log_rows import (
    FAILED,
    NO_USAGE,
    OTHER_ROUTE,
    LogRows,
    first_of,
    read_records,
)
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows
from fleetsim.traces.sources.times import NS_PER_S, duration_ns

INPUT = (
    "gen_ai.usage.input_tokens",
    "genai_tokens_input",
    "llm_input_token",
    "input_tokens",
    "prompt_tokens",
)
OUTPUT = (
    "gen_ai.usage.output_tokens",
    "genai_tokens_output",
    "llm_output_token",
    "output_tokens",
    "completion_tokens",
)
_MODEL = ("gen_ai.request.model", "genai_model_name", "x-ai-eg-model", "model")
_SESSION = ("session.id", "session_id")
_ID = ("x-request-id", "x_request_id", "request_id")
_PATH = ("x-envoy-origin-path", "request.path", "path", "uri", "request_uri")
_MAX = ("max_tokens", "gen_ai.request.max_tokens")
_GENERATES = ("/completions", "/responses", "/messages", "/generate", "/generate_stream")
_NEVER = ("/embeddings", "/rerank", "/score", "/pooling", "/tokenize", "/detokenize", "/models")


@dataclass(frozen=True, slots=True)
class _Dialect:
    time: str
    status: str
    duration: str | None  # to be taken off the time, in seconds
    arrival: str


def _reader(dialect: _Dialect) -> Any:
    def read(content: Content, layout: Layout) -> Rows:
        return _read(content, layout, dialect)

    return read


def _read(content: Content, layout: Layout, dialect: _Dialect) -> Rows:
    rows = LogRows(content, dialect.time, unique_ids=False)
    for line, row in read_records(content, layout):
        prompt = rows.first_whole(line, row, INPUT)
        output = rows.first_whole(line, row, OUTPUT)
        counted = prompt is not None and output is not None
        path = str(first_of(row, _PATH) or "").partition("?")[0].rstrip("/")
        status = rows.whole(line, dialect.status, row.get(dialect.status))
        if path.endswith(_NEVER) or not (counted or path.endswith(_GENERATES)):
            rows.drop(OTHER_ROUTE)
        elif status is None or not 200 <= status < 300:
            rows.drop(FAILED)
        elif prompt is None or output is None:
            rows.drop(NO_USAGE)
        else:
            before_ns = 0
            if dialect.duration is not None:
                value = row.get(dialect.duration)
                before_ns = duration_ns(content, dialect.duration, value, line, NS_PER_S)
            rows.add(
                line,
                row.get(dialect.time),
                prompt,
                output,
                before_ns=before_ns,
                max_tokens=rows.first_whole(line, row, _MAX),
                request_id=first_of(row, _ID),
                tenant=row.get("tenant"),
                model=first_of(row, _MODEL),
                session=first_of(row, _SESSION),
            )
    return rows.rows(dialect.arrival)


ENVOY = TraceFormat(
    name="envoy",
    about="JSON access log of Envoy with token counts",
    kinds=("JSONL",),
    required=("start_time", "response_code"),
    optional=(),
    read=_reader(_Dialect("start_time", "response_code", None, "start_time")),
    any_of=(INPUT, OUTPUT),
    ignores_others=True,
)
NGINX = TraceFormat(
    name="nginx",
    about="JSON access log of nginx with token counts",
    kinds=("JSONL",),
    required=("msec", "request_time", "status"),
    optional=(),
    read=_reader(
        _Dialect("msec", "status", "request_time", "msec (end of the request) less request_time")
    ),
    any_of=(INPUT, OUTPUT),
    ignores_others=True,
)
