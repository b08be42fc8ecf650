"""Times of a log: one form per column, found from the values, never mixed.

Logs write times as ISO 8601 text with or without a zone, or as a number since 1970 in seconds,
milliseconds, microseconds or nanoseconds. The size of the number tells the unit: the ranges below
lie between 1973 and 2262 and do not overlap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetsim.traces.schema import IntArray
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.table import row_error

NS_PER_S = 1_000_000_000
_EPOCH = (  # from, below, form, nanoseconds per unit
    (10**8, 10**11, "epoch seconds", 10**9),
    (10**11, 10**14, "epoch milliseconds", 10**6),
    (10**14, 10**17, "epoch microseconds", 10**3),
    (10**17, 2**63, "epoch nanoseconds", 1),
)
_ZONED = "ISO 8601 with a zone"
_NAIVE = "ISO 8601 without a zone, taken as UTC"
_NUMBER = re.compile(r"\d{1,20}(\.\d{1,12})?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?")
_BATCH_ROWS = 1 << 16
_RIGHT = "a time such as 2026-03-01T12:00:00.250Z, or seconds since 1970"


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """One column of times.

    Attributes:
        stamps_ns: int64, nanoseconds since 1970.
        form: how the column writes them, for people.
        t0_iso: gives the wall-clock time of a stamp.
    """

    stamps_ns: IntArray
    form: str
    t0_iso: Callable[[int], str]


class TimeColumn:
    """Reads one column of times, some thousands at a time.

    Args:
        content: the file, for error messages.
        name: of the column.
    """

    def __init__(self, content: Content, name: str) -> None:
        self._content = content
        self._name = name
        self._form: str | None = None
        self._first_line = 0
        self._values: list[Any] = []
        self._lines: list[int] = []
        self._stamps: list[IntArray] = []

    def add(self, value: Any, line: int) -> None:
        """Add the time of one row: text, int or float.

        Raises:
            InputError: a value that is no time, or of another form than the first row's.
        """
        form = _form(self._content, self._name, value, line)
        if self._form is None:
            self._form, self._first_line = form, line
        if form != self._form:
            raise row_error(
                self._content.path,
                line,
                f"{self._name} is {_shown(value)}; must be {self._form} as in row "
                f"{self._first_line}: times of one file must have one form",
            )
        self._values.append(value)
        self._lines.append(line)
        if len(self._values) == _BATCH_ROWS:
            self._read_batch()

    def finish(self) -> Times:
        """Give the column, of at least one row.

        Raises:
            InputError: a date that does not exist.
        """
        self._read_batch()
        assert self._form is not None
        zoned = self._form != _NAIVE

        def t0_iso(stamp_ns: int) -> str:
            epoch = datetime(1970, 1, 1, tzinfo=UTC if zoned else None)
            return (epoch + timedelta(microseconds=stamp_ns // 1000)).isoformat()

        return Times(np.concatenate(self._stamps), self._form, t0_iso)

    def _read_batch(self) -> None:
        if not self._values:
            return
        if self._form in (_ZONED, _NAIVE):
            zoned = self._form == _ZONED
            stamps = _iso(self._content, self._name, self._values, self._lines, zoned)
        else:
            unit = next(scale for _, _, label, scale in _EPOCH if label == self._form)
            stamps = np.array([int(Decimal(str(one)) * unit) for one in self._values], np.int64)
        self._stamps.append(stamps)
        self._values, self._lines = [], []


def duration_ns(content: Content, name: str, value: Any, line: int, unit_ns: int) -> int:
    """Read a duration, a number or text of at least 0, exactly.

    Raises:
        InputError: anything else.
    """
    text = "" if isinstance(value, bool) else str(value)
    if not _NUMBER.fullmatch(text):
        right = "a number of at least 0"
        raise row_error(content.path, line, f"{name} is {_shown(value)}; must be {right}")
    return int(Decimal(text) * unit_ns)


def _form(content: Content, name: str, value: Any, line: int) -> str:
    text = value if type(value) is str else str(value)
    if _NUMBER.fullmatch(text) and type(value) is not bool:
        whole = int(text.partition(".")[0])
        for low, high, form, _ in _EPOCH:
            if low <= whole < high:
                if form == "epoch seconds" and whole * NS_PER_S >= 2**63:
                    break
                return form
        raise row_error(
            content.path,
            line,
            f"{name} is {_shown(value)}; must be seconds, milliseconds, microseconds or "
            "nanoseconds since 1970, between 1973 and 2262",
        )
    match = _ISO.fullmatch(text) if type(value) is str else None
    if match is None:
        raise row_error(content.path, line, f"{name} is {_shown(value)}; must be {_RIGHT}")
    return _ZONED if match[3] else _NAIVE


def _iso(
    content: Content, name: str, values: Sequence[str], lines: Sequence[int], zoned: bool
) -> IntArray:
    kind = pa.timestamp("ns", "UTC" if zoned else None)
    try:
        parsed = pc.cast(pa.array(values, pa.string()), kind)
    except pa.ArrowInvalid:
        for value, line in zip(values, lines, strict=True):
            try:
                pc.cast(pa.scalar(value), kind)
            except pa.ArrowInvalid:
                text = f"{name} is {_shown(value)}; must be {_RIGHT}"
                raise row_error(content.path, line, text) from None
        raise
    return np.asarray(pc.cast(parsed, pa.int64()).to_numpy(zero_copy_only=False))


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "empty"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:60] + "..."
