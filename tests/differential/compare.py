"""The first difference between two recordings, as text a person can read."""

from __future__ import annotations

from dataclasses import fields

from differential.recording import Recording, RequestRecord, Row

_LISTED = 12


def first_difference(
    expected: Recording, found: Recording, names: tuple[str, str] = ("expected", "found")
) -> str | None:
    """None if both took the same decisions at the same times; else the first row that differs."""
    for want, got in zip(expected.rows, found.rows, strict=False):
        if want != got:
            before = expected.rows[want.step - 1] if want.step else None
            head = f"step {want.step} differs (rows before it are equal)"
            lines = [] if before is None else [f"  the step before: {_short(before.scheduled)}"]
            return "\n".join([head, *lines, _side_by_side(want, got, names)])
    if len(expected.rows) != len(found.rows):
        rows = expected.rows if len(expected.rows) > len(found.rows) else found.rows
        extra = rows[min(len(expected.rows), len(found.rows))]
        who = names[0] if rows is expected.rows else names[1]
        return f"only {who} has step {extra.step}:\n{_side_by_side(extra, extra, (who, who))}"
    for request in sorted(expected.requests.keys() | found.requests.keys()):
        want_end, got_end = expected.requests.get(request), found.requests.get(request)
        if want_end is None or got_end is None:
            who = names[1] if want_end is None else names[0]
            return f"only {who} has an end of request {request}"
        if want_end != got_end:
            head = f"request {request} ended differently (all rows are equal)"
            return f"{head}\n{_side_by_side(want_end, got_end, names)}"
    return None


def _side_by_side(
    want: Row | RequestRecord, got: Row | RequestRecord, names: tuple[str, str]
) -> str:
    lines = [f"    {'':15} {names[0]:50} {names[1]}"]
    for item in fields(want):
        left, right = getattr(want, item.name), getattr(got, item.name)
        mark = "  " if left == right else "=>"
        if left != right and isinstance(left, list) and len(left) > _LISTED:
            first = next(
                (i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
                min(len(left), len(right)),
            )
            left, right = left[first:], right[first:]
            mark = f"=> from [{first}]"
        lines.append(f" {mark} {item.name:15} {_short(left):50} {_short(right)}")
    return "\n".join(lines)


def _short(value: object) -> str:
    if isinstance(value, list) and len(value) > _LISTED:
        return f"[{', '.join(map(str, value[:_LISTED]))}, ... {len(value)} in all]"
    return str(value)
