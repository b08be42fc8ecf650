"""One JSON object of a trace, read key by key with checks that name the row."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray, IntArray
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.table import row_error

_INT32_MAX = 2**31 - 1
_ABSENT = object()


class Record:
    """An object and the line on which it stands; ``where`` says which part of the line it is."""

    __slots__ = ("content", "line", "row", "where")

    def __init__(
        self, content: Content, line: int, row: Mapping[str, Any], where: str = ""
    ) -> None:
        self.content = content
        self.line = line
        self.row = row
        self.where = where

    def error(self, text: str) -> InputError:
        """Make an error that names the file, the row and the part of it."""
        return row_error(self.content.path, self.line, self.where + text)

    def refuse_unknown(self, known: Collection[str], name: str) -> None:
        """Refuse a key for which the format has no place, so that none is silently left out."""
        if not self.row.keys() <= set(known):
            extra = next(key for key in self.row if key not in known)
            raise self.error(f"unknown key {extra!r}; {name} has only {', '.join(known)}")

    def whole(self, key: str, *, low: int = 0, high: int = _INT32_MAX) -> int:
        """Read a whole number in [low, high]."""
        value = self._get(key)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            right = f"at least {low}" if not (type(value) is int and value > high) else ""
            right = right or f"at most {high}"
            raise self.error(f"{key} is {value!r}; must be a whole number of {right}")
        return value

    def number(self, key: str, unit: str) -> float:
        """Read a finite number of at least 0, an integer kept as one."""
        value = self._get(key)
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise self.error(f"{key} is {value!r}; must be {unit} of at least 0")
        return value  # type: ignore[no-any-return]

    def has(self, key: str) -> bool:
        """Tell whether a key is there, and not null."""
        return self.row.get(key) is not None

    def text(self, key: str) -> str | None:
        """Read a name: text or a number; None where it is missing, null or empty."""
        value = self.row.get(key)
        if value is None or value == "":
            return None
        if type(value) not in (str, int):
            raise self.error(f"{key} is {value!r}; must be text")
        return str(value)

    def objects(self, key: str) -> list[dict[str, Any]]:
        """Read a list of objects."""
        value = self._get(key)
        if type(value) is not list or not all(type(item) is dict for item in value):
            raise self.error(f"{key} must be a list of objects")
        return value

    def ids(self, key: str) -> list[int]:
        """Read a list of whole numbers."""
        value = self._get(key)
        if type(value) is not list:
            raise self.error(f"{key} is a {type(value).__name__}; must be a list of block ids")
        if not set(map(type, value)) <= {int}:
            raise self.error(f"{key} must be whole numbers")
        return value

    def _get(self, key: str) -> Any:
        value = self.row.get(key, _ABSENT)
        if value is _ABSENT:
            raise self.error(f"lacks {key}")
        return value


def exact_stamps(stamps: list[float] | FloatArray) -> IntArray | FloatArray:
    """Keep whole ticks as integers, whose grid is exact; a fraction anywhere keeps all floats."""
    values = np.array(stamps, dtype=np.float64)
    if bool((np.abs(values) < 2.0**53).all()) and bool((values == np.floor(values)).all()):
        return values.astype(np.int64)
    return values
