"""JSON Lines: one object per line, with exact line numbers; or one object over several lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

from fleetsim.traces.errors import InputError
from fleetsim.traces.sources.content import HEAD_BYTES, Content
from fleetsim.traces.sources.table import row_error

_SPACE = " \t\r\n"


def read_head(content: Content) -> tuple[dict[str, Any], ...]:
    """Parse the objects in the head of the file, the first one as far as it lies there.

    The stream is not moved. Damage below the first line is left to the reader of the rows.

    Raises:
        InputError: the first line is not a JSON object.
    """
    lines = content.head.removeprefix(codecs.BOM_UTF8).split(b"\n")
    cut = len(content.head) == HEAD_BYTES
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if cut and number == len(lines):
            if not rows:
                rows.append(scan_object(line.decode(errors="ignore")))
            break
        try:
            rows.append(_parse(content, number, line))
        except InputError:
            if not rows:
                raise
            break
    return tuple(rows)


def scan_object(text: str) -> dict[str, Any]:
    """Read the keys of an object that may be cut off, with the values that are complete.

    Of a value that is cut off only the type is kept: an empty list, object or text.
    """
    decode = json.JSONDecoder().raw_decode
    found: dict[str, Any] = {}
    at = _skip(text, 0, _SPACE)
    if text[at : at + 1] != "{":
        return found
    at += 1
    while True:
        at = _skip(text, at, _SPACE + ",")
        try:
            key, at = decode(text, at)
        except (ValueError, RecursionError):
            return found
        at = _skip(text, at, _SPACE)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            return found
        at = _skip(text, at + 1, _SPACE)
        try:
            found[key], at = decode(text, at)
        except (ValueError, RecursionError):
            found[key] = {"[": [], "{": {}, '"': ""}.get(text[at : at + 1])
            return found


def _skip(text: str, at: int, characters: str) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


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


def read_document(content: Content) -> dict[str, Any]:
    """Read a file that is one object.

    Raises:
        InputError: it is not.
    """
    text = content.stream.read().removeprefix(codecs.BOM_UTF8)
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise content.error(f"is not JSON ({reason}); must be one object") from None
    if not isinstance(value, dict):
        raise content.error(f"is a JSON {type(value).__name__}; must be one object")
    return value


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
