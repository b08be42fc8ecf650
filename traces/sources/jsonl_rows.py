"""JSON Lines: one object per line, with exact line numbers."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

from fleetsim.traces.sources.content import HEAD_BYTES, Content
from fleetsim.traces.sources.table import row_error


def read_first(content: Content) -> dict[str, Any]:
    """Parse the first object from the head of the file; the stream is not moved.

    Raises:
        InputError: not one JSON object per line.
    """
    lines = content.head.removeprefix(codecs.BOM_UTF8).split(b"\n")
    number, line = next((n, text) for n, text in enumerate(lines, 1) if text.strip())
    if len(content.head) == HEAD_BYTES and content.head.count(b"\n") < number:
        raise row_error(
            content.path, number, "is longer than 256 KiB; no known JSONL trace has such rows"
        )
    return _parse(content, number, line)


def read_objects(content: Content) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read all objects as (line number, object); blank lines are skipped.

    Raises:
        InputError: a line that is not a JSON object.
    """
    for number, line in enumerate(content.stream, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.isspace():
            yield number, _parse(content, number, line)


def _parse(content: Content, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise row_error(
            content.path, number, f"is not JSON ({reason}); must be one object per line"
        ) from None
    if not isinstance(value, dict):
        raise row_error(
            content.path, number, f"is a JSON {type(value).__name__}; must be one object per line"
        )
    return value
