"""Logs of OpenAI-style requests with their text: JSON Lines, one request and its answer per line.

A line is ``{"timestamp", "request": {...}, "response": {...}}`` and may have ``request_id``,
``session``, ``tenant`` and ``status``. ``request`` and ``response`` are the bodies of the API:
chat completions, completions, responses, or messages. An answer that was streamed is the list of
its chunks. Lengths are what the answer's ``usage`` says; the text itself is looked at only by
``fleetsim trace hash``, which can count its tokens where there is no ``usage``.

Arrival is ``timestamp``, ``start_time`` or ``created``, whichever the first row has; else
``response.created``, which the server takes when it begins to answer, in whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_first, read_objects
from fleetsim.traces.sources.log_rows import FAILED, NO_USAGE, LogRows, first_of, is_blank
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

NOT_GENERATION = "not_generation"
SEVERAL_PROMPTS = "several_prompts"
_TIMES = ("timestamp", "start_time", "created")
_PROMPTS = ("messages", "prompt", "input", "prompt_token_ids")
_MAX = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One served request.

    Attributes:
        line: its row.
        time: when it arrived, as the file writes it.
        request: its body.
        response: the answer's body, or the list of its chunks.
        prompt_tokens: what ``usage`` says; None without.
        output_tokens: what ``usage`` says; None without.
        labels: what :meth:`LogRows.add` takes besides.
    """

    line: int
    time: Any
    request: dict[str, Any]
    response: list[dict[str, Any]]
    prompt_tokens: int | None
    output_tokens: int | None
    labels: dict[str, Any]


class OpenAiLog:
    """The served requests of a log; the others are dropped in ``rows`` while they are read.

    Attributes:
        rows: where the caller adds requests, or drops them.
    """

    def __init__(self, content: Content, first: dict[str, Any]) -> None:
        self._content = content
        name = next((name for name in _TIMES if not is_blank(first.get(name))), None)
        self._time_name = name or "response.created"
        self.rows = LogRows(content, self._time_name, unique_ids=False)
        self._several = 0

    def exchanges(self) -> Iterator[Exchange]:
        """Read the requests that were served, in file order."""
        rows = self.rows
        for line, row in read_objects(self._content):
            request = row.get("request")
            if not isinstance(request, dict):
                raise rows.error(line, "request is no object; must be the body of the request")
            if all(request.get(name) is None for name in _PROMPTS):
                text = f"request has none of {', '.join(_PROMPTS)}; must be the body of the request"
                raise rows.error(line, text)
            chunks = _chunks(row.get("response"))
            if not chunks or _has_failed(row, chunks):
                rows.drop(FAILED)
                continue
            usage = _usage(chunks)
            if _is_embedding(request, chunks, usage):
                rows.drop(NOT_GENERATION)
                continue
            if is_batch(request.get("prompt")):
                rows.drop(SEVERAL_PROMPTS)
                continue
            if rows.whole(line, "n", request.get("n")) not in (None, 1):
                self._several += 1
            yield Exchange(
                line,
                self._time(row, chunks),
                request,
                chunks,
                rows.first_whole(line, usage, _INPUT),
                rows.first_whole(line, usage, _OUTPUT),
                {
                    "max_tokens": rows.first_whole(line, request, _MAX),
                    "request_id": first_of(row, ("request_id", "id")),
                    "session": first_of(row, ("session", "session_id", "conversation_id")),
                    "tenant": first_of(row, ("tenant", "team_id")),
                    "model": request.get("model"),
                },
            )

    def finish(self, block_tokens: int | None = None) -> Rows:
        """Give the rows, after the last of them."""
        if self._several:
            self.rows.warn(
                f"{self._several} requests asked for n > 1 answers; their output_tokens is the sum"
            )
        return self.rows.rows(self._time_name, block_tokens)

    def _time(self, row: dict[str, Any], chunks: list[dict[str, Any]]) -> Any:
        if self._time_name in _TIMES:
            return row.get(self._time_name)
        return first_of(chunks[0], ("created", "created_at"))


def is_batch(prompt: Any) -> bool:
    """Whether a completion's prompt is several prompts, whose usage is one sum."""
    return isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)


def _read(content: Content, layout: Layout) -> Rows:
    log = OpenAiLog(content, read_first(content))
    for one in log.exchanges():
        if one.prompt_tokens is None or one.output_tokens is None:
            log.rows.drop(NO_USAGE)
        else:
            log.rows.add(one.line, one.time, one.prompt_tokens, one.output_tokens, **one.labels)
    return log.finish()


def _chunks(response: Any) -> list[dict[str, Any]]:
    """Give the answer as a list of bodies; ``{"status_code", "body"}`` may be around one."""
    if isinstance(response, dict) and isinstance(response.get("body"), dict):
        response = {**response["body"], "status_code": response.get("status_code")}
    chunks = response if isinstance(response, list) else [response]
    return [chunk for chunk in chunks if isinstance(chunk, dict)]


def _has_failed(row: dict[str, Any], chunks: list[dict[str, Any]]) -> bool:
    status = first_of({**chunks[0], **row}, ("status_code", "status"))
    if isinstance(status, int) or (isinstance(status, str) and status.isdigit()):
        bad = not 200 <= int(status) < 300
    else:
        bad = status in ("failure", "failed", "error", "cancelled")
    return bad or any(_is_filled(holder.get("error")) for holder in (row, *chunks))


def _usage(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Find the token counts: in a stream, the last chunk that has any."""
    for chunk in reversed(chunks):
        # the responses API puts the body into the event that ends the stream
        inner = chunk.get("response")
        for holder in (chunk, inner if isinstance(inner, dict) else {}):
            usage = holder.get("usage")
            if isinstance(usage, dict) and usage:
                return usage
    return {}


def _is_filled(value: Any) -> bool:
    return isinstance(value, dict | str) and len(value) > 0


def _is_embedding(
    request: dict[str, Any], chunks: list[dict[str, Any]], usage: dict[str, Any]
) -> bool:
    """Embeddings and rerankings: usage without output tokens, or a list of vectors."""
    vectors = chunks[0].get("object") == "list" or "results" in chunks[0]
    return vectors or (bool(usage) and first_of(usage, _OUTPUT) is None)


OPENAI = TraceFormat(
    name="openai",
    about="OpenAI-style requests with their answers",
    kinds=("JSONL",),
    required=("request", "response"),
    optional=(),
    read=_read,
    ignores_others=True,
)
