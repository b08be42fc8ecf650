"""The first difference between two recordings, as text a person can read."""

from __future__ import annotations

from dataclasses import fields
from itertools import zip_longest
from typing import Any

from differential.recording import Recording, RequestRecord, Row

_UPDATE_FIELDS = ("finished", "free_updated")
_SHOWN = 8  # differing items of one field
_WIDTH = 100  # characters of a field that is equal
_COLUMN = 42


def first_difference(
    expected: Recording, found: Recording, names: tuple[str, str] = ("expected", "found")
) -> str | None:
    """None if both took the same decisions at the same times; else the first that differs."""
    index = _first_differing_row(expected.rows, found.rows)
    if index is not None:
        want, got = _at(expected.rows, index), _at(found.rows, index)
        lines = [f"step {index} is the first that differs"]
        if index:
            lines.append(
                f"    the step before scheduled {_cut(expected.rows[index - 1].scheduled)}"
            )
        return "\n".join([*lines, *_side_by_side(want, got, names)])
    for request in sorted(expected.requests.keys() | found.requests.keys()):
        want_end, got_end = expected.requests.get(request), found.requests.get(request)
        if want_end != got_end:
            lines = [f"all steps are equal, but request {request} ended differently"]
            return "\n".join([*lines, *_side_by_side(want_end, got_end, names)])
    return None


def differing_steps(expected: Recording, found: Recording) -> int:
    """How many steps of the longer recording are not those of the other."""
    return sum(want != got for want, got in zip_longest(expected.rows, found.rows))


def _first_differing_row(expected: list[Row], found: list[Row]) -> int | None:
    for index, (want, got) in enumerate(zip_longest(expected, found)):
        if want == got:
            continue
        if want is not None and got is not None and _scheduling(want) == _scheduling(got):
            # under async the next step was scheduled before this one's outputs were processed
            after, after_got = _at(expected, index + 1), _at(found, index + 1)
            if after is not None and after_got is not None and after.t_sched < want.t_end:
                return index if _scheduling(after) == _scheduling(after_got) else index + 1
        return index
    return None


def _scheduling(row: Row) -> list[Any]:
    return [getattr(row, item.name) for item in fields(row) if item.name not in _UPDATE_FIELDS]


def _at(rows: list[Row], index: int) -> Row | None:
    return rows[index] if index < len(rows) else None


def _side_by_side(
    want: Row | RequestRecord | None, got: Row | RequestRecord | None, names: tuple[str, str]
) -> list[str]:
    if want is None or got is None:
        only = want or got
        who = names[0] if got is None else names[1]
        return [f"    only {who} has it:", f"    {_cut(only)}"]
    lines = [f"    {'':15} {names[0]:{_COLUMN}} | {names[1]}"]
    for item in fields(want):
        left, right = getattr(want, item.name), getattr(got, item.name)
        if left == right:
            lines.append(f"    {item.name:15} {_cut(left)}")
        else:
            pairs = _differing_items(left, right)
            lines += [
                f" => {item.name if i == 0 else '':15} {a:{_COLUMN}} | {b}"
                for i, (a, b) in enumerate(pairs[:_SHOWN])
            ]
            if len(pairs) > _SHOWN:
                lines.append(f"    {'':15} and {len(pairs) - _SHOWN} more")
    return lines


def _differing_items(left: Any, right: Any) -> list[tuple[str, str]]:
    if isinstance(left, list):
        return [
            (f"[{i}] {_item(a)}", f"[{i}] {_item(b)}")
            for i, (a, b) in enumerate(zip_longest(left, right))
            if a != b
        ]
    if isinstance(left, dict):
        return [
            (f"{key}: {_item(left.get(key))}", f"{key}: {_item(right.get(key))}")
            for key in {**left, **right}
            if left.get(key) != right.get(key)
        ]
    return [(str(left), str(right))]


def _item(value: object) -> str:
    return "-" if value is None else str(value)


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 4] + " ..."
