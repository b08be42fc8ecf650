"""JSON Lines: one object per line, with exact line numbers; a list of objects, or one of them."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from fleetsim.traces.errors import InputError
from fleetsim.traces.sources.content import HEAD_BYTES, Content, open_content
from fleetsim.traces.sources.table import row_error

_SPACE = " \t\r\n"
_LIST_OF_OBJECTS = re.compile(rb"\s*\[\s*\{")
_CHUNK_BYTES = 1 << 20


def is_list(content: Content) -> bool:
    """Tell whether the file is one list of objects."""
    return bool(_LIST_OF_OBJECTS.match(content.head.removeprefix(codecs.BOM_UTF8)))


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


def read_first(content: Content) -> dict[str, Any]:
    """Parse the first object; the stream is not moved.

    Raises:
        InputError: not one JSON object per line, nor a list of objects.
    """
    head = content.head.removeprefix(codecs.BOM_UTF8)
    if not is_list(content):
        lines = head.split(b"\n")
        number, line = next((n, text) for n, text in enumerate(lines, 1) if text.strip())
        if len(content.head) < HEAD_BYTES or content.head.count(b"\n") >= number:
            return _parse(content, number, line)
    with open_content(content.path) as again:  # longer than the head: a prompt, or many spans
        return next(read_objects(again))[1]


def read_objects(content: Content) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read all objects as (line number, object); blank lines are skipped.

    In a file that is one list of objects, the number is the position in the list, from 1.

    Raises:
        InputError: a line, or an item of the list, that is not a JSON object.
    """
    if is_list(content):
        yield from _read_list(content)
        return
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


def _read_list(content: Content) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read a list piece by piece, so that it need not fit into memory."""
    decoder = json.JSONDecoder()
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    text, at, number, ended = "", 0, 0, False
    before = "["  # what stands before the next item
    while True:
        start = _skip_blank(text, at)
        if start < len(text) and text[start] == "]" and before == ",":
            if text[start + 1 :].strip() or _has_more(content):
                raise row_error(content.path, number, "is followed by more than the list's end")
            return
        if start < len(text) and text[start] != before:
            raise row_error(content.path, number, f"is not followed by a comma or ']' ({before!r})")
        start = _skip_blank(text, start + 1)
        problem = "the list is cut short"
        if start < len(text):
            try:
                value, at = decoder.raw_decode(text, start)
            except (ValueError, RecursionError) as error:
                problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            else:
                number += 1
                if not isinstance(value, dict):
                    text = f"is a JSON {type(value).__name__}; must be one object per item"
                    raise row_error(content.path, number, text)
                yield number, value
                before = ","
                continue
        if ended:
            raise row_error(
                content.path, number + 1, f"is not JSON ({problem}); must be a list of objects"
            )
        piece = content.stream.read(max(_CHUNK_BYTES, len(text) - at))
        ended = not piece
        try:
            text, at = text[at:] + decode(piece, final=ended), 0
        except UnicodeDecodeError as error:
            raise row_error(content.path, number + 1, f"is not UTF-8 text ({error})") from None


def _skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _has_more(content: Content) -> bool:
    """Whether anything but white space is left."""
    while piece := content.stream.read(_CHUNK_BYTES):
        if piece.strip():
            return True
    return False


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
