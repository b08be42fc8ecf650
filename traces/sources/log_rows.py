"""Rows of a log of served requests, gathered one at a time.

A log holds more than a trace needs: failures, health checks, answers from a cache, prompts, names
of people. A loader of one log format looks at each row, and either adds it or drops it under a
name. Only token counts, times and the labels that it hands over are kept; nothing else of a row
is stored.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Categorical, IntArray
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import read_batches
from fleetsim.traces.sources.jsonl_rows import read_objects
from fleetsim.traces.sources.registry import Layout
from fleetsim.traces.sources.rows import Chains, Rows
from fleetsim.traces.sources.table import row_error
from fleetsim.traces.sources.times import NS_PER_S, TimeColumn

_INT32_MAX = 2**31 - 1
_WHOLE = re.compile(r"\d{1,20}(\.0*)?")
_LABELS = ("session", "tenant", "model")
_COLUMNS = ("line", "prompt", "output", "max_tokens", "before_ns", "source_row", "chain")

DUPLICATE = "duplicate"
FAILED = "failed"
NO_USAGE = "no_usage"
OTHER_ROUTE = "other_route"


def read_records(content: Content, layout: Layout) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read all rows as (row number, columns by name), from CSV or JSON."""
    if layout.kind != "CSV":
        yield from read_objects(content)
        return
    assert layout.header is not None
    for table in read_batches(content, layout.header):
        names = tuple(table.columns)
        cells = zip(*(table.columns[name].to_pylist() for name in names), strict=True)
        for line, row in zip(table.line_numbers.tolist(), cells, strict=True):
            yield line, dict(zip(names, row, strict=True))


def first_of(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Give the first of several columns that says something; None where none does."""
    for name in names:
        value = row.get(name)
        if not is_blank(value):
            return value
    return None


def is_blank(value: Any) -> bool:
    """Whether a cell is empty; Envoy writes a dash where it knows nothing."""
    return value is None or (type(value) is str and value.strip() in ("", "-"))


class LogRows:
    """Kept rows as columns, dropped ones by name.

    Args:
        content: the file.
        time_name: of the column of times, for messages.
        unique_ids: whether an id that comes back with another content is an error (the id is a
            key of the log), or a client's own header that may come twice.
    """

    def __init__(self, content: Content, time_name: str, *, unique_ids: bool) -> None:
        self._content = content
        self._unique_ids = unique_ids
        self._dropped: dict[str, int] = {}
        self._read = 0
        self._times = TimeColumn(content, time_name)
        self._columns = {name: array("q") for name in _COLUMNS}
        self._labels: dict[str, tuple[array[int], dict[str, int]]] = {
            name: (array("i"), {}) for name in _LABELS
        }
        self._ids = array("Q")  # hash of each request id, 0 without one
        self._said = array("Q")  # hash of what the row says
        self._block_ids = array("Q")
        self._warnings: list[str] = []

    def drop(self, reason: str) -> None:
        """Count a row that is not kept."""
        self._read += 1
        self._dropped[reason] = self._dropped.get(reason, 0) + 1

    def warn(self, text: str) -> None:
        """Add a line for the reader of results."""
        self._warnings.append(text)

    def whole(self, line: int, name: str, value: Any) -> int | None:
        """Read a count; None where the cell is empty.

        Raises:
            InputError: anything but a whole number from 0 to 2**31 - 1.
        """
        if type(value) is int and 0 <= value <= _INT32_MAX:
            return value
        if is_blank(value):
            return None
        text = "" if isinstance(value, bool) else str(value).strip()
        if not _WHOLE.fullmatch(text) or int(text.partition(".")[0]) > _INT32_MAX:
            shown = repr(value)[:60] if isinstance(value, str | int | float) else "no number"
            right = f"a whole number from 0 to {_INT32_MAX}"
            raise self.error(line, f"{name} is {shown}; must be {right}")
        return int(text.partition(".")[0])

    def first_whole(self, line: int, row: dict[str, Any], names: tuple[str, ...]) -> int | None:
        """Read the first of several counts that says something.

        Raises:
            InputError: as :meth:`whole`.
        """
        for name in names:
            count = self.whole(line, name, row.get(name))
            if count is not None:
                return count
        return None

    def error(self, line: int, text: str) -> InputError:
        """Make an error that names the file and the row."""
        return row_error(self._content.path, line, text)

    def add(
        self,
        line: int,
        time: Any,
        prompt: int,
        output: int,
        *,
        before_ns: int = 0,
        max_tokens: int | None = None,
        request_id: Any = None,
        block_ids: list[int] | None = None,
        **labels: Any,
    ) -> None:
        """Add one served request.

        Args:
            line: its row in the file.
            time: as the file writes it.
            prompt: tokens.
            output: tokens.
            before_ns: how long before ``time`` the request arrived, where the file tells the end.
            max_tokens: what the client allowed.
            request_id: to find rows that come twice.
            block_ids: chain of the prompt.
            labels: session, tenant, model.

        Raises:
            InputError: a label that is no text, a time of another form.
        """
        self._times.add(time, line)
        self._ids.append(0 if is_blank(request_id) else _hash(str(request_id)))
        self._said.append(_hash(f"{time} {before_ns} {prompt} {output}"))
        values = (
            line,
            prompt,
            output,
            max_tokens or 0,
            before_ns,
            self._read,
            len(block_ids or ()),
        )
        for column, number in zip(self._columns.values(), values, strict=True):
            column.append(number)
        if block_ids:
            self._block_ids.extend(block_ids)
        for name, (codes, numbers) in self._labels.items():
            value = labels.get(name)
            if is_blank(value):
                codes.append(-1)
                continue
            if type(value) not in (str, int):
                raise self.error(line, f"{name} is no text; must be a name")
            codes.append(numbers.setdefault(str(value), len(numbers)))
        self._read += 1

    def rows(self, arrival: str, block_tokens: int | None = None) -> Rows:
        """Give all rows.

        Args:
            arrival: what the arrival is made of, for the reader of results.
            block_tokens: prompt tokens per block id; None for a log without chains.

        Raises:
            InputError: no row left, or times that cannot be read.
        """
        content = self._content
        if not self._ids:
            if not self._dropped:
                raise content.error("has no rows; a trace needs at least one")
            raise content.error(
                f"no row left of {self._read}: dropped {self._dropped}; give served requests with "
                "token counts"
            )
        columns = {name: np.array(data, np.int64) for name, data in self._columns.items()}
        times = self._times.finish()
        again, reused = self._find_repeats(columns["line"])
        if again.any():
            self._dropped[DUPLICATE] = int(again.sum())
        kept = np.flatnonzero(~again)
        notes = [f"arrival is {arrival}: {times.form}", *self._warnings]
        if reused:
            notes.append(
                f"{reused} rows have a request id that an earlier row had, with another time or "
                "other token counts; kept, as clients may set it themselves"
            )
        lost = self._dropped.get(NO_USAGE, 0)
        if lost:
            notes.append(
                f"{lost} served requests have no token counts and are left out: the load is "
                f"understated by {lost / (lost + len(kept)):.1%} of its requests"
            )
        max_tokens = columns["max_tokens"][kept]
        return Rows(
            stamps=(times.stamps_ns - columns["before_ns"])[kept],
            ticks_per_s=NS_PER_S,
            prompt_tokens=columns["prompt"][kept],
            output_tokens=columns["output"][kept],
            line_numbers=columns["line"][kept],
            t0_iso=times.t0_iso,
            chains=self._chains(columns["chain"], again, block_tokens),
            max_tokens=max_tokens if max_tokens.any() else None,
            source_row=columns["source_row"][kept],
            session=self._label("session", kept),
            tenant=self._label("tenant", kept),
            model=self._label("model", kept),
            dropped=dict(sorted(self._dropped.items())),
            warnings=tuple(notes),
        )

    def _find_repeats(self, lines: IntArray) -> tuple[npt.NDArray[np.bool_], int]:
        """Find rows that say the same under an earlier row's id, and count those that do not.

        Raises:
            InputError: the latter, where the id is a key.
        """
        ids, said = np.array(self._ids, np.uint64), np.array(self._said, np.uint64)
        known = np.flatnonzero(ids)
        _, first, number = np.unique(ids[known], return_index=True, return_inverse=True)
        earlier = known[first][number.reshape(-1)]  # the first row with the same id
        same = said[known] == said[earlier]
        again = np.zeros(len(ids), np.bool_)
        again[known] = same & (earlier < known)
        other = np.flatnonzero(~same)
        if len(other) and self._unique_ids:
            raise self.error(
                int(lines[known[other[0]]]),
                f"its request id was used in row {lines[earlier[other[0]]]} with another time or "
                "other token counts; each id must occur once",
            )
        return again, len(other)

    def _chains(
        self, lengths: IntArray, again: npt.NDArray[np.bool_], block_tokens: int | None
    ) -> Chains | None:
        if block_tokens is None:
            return None
        ids = np.array(self._block_ids, np.uint64)
        return Chains(lengths[~again], ids[~np.repeat(again, lengths)], block_tokens)

    def _label(self, name: str, kept: IntArray) -> Categorical | None:
        codes, numbers = self._labels[name]
        if not numbers:
            return None
        return Categorical(np.array(codes, np.int32)[kept], tuple(numbers))


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
