"""Numbers as people read them: three digits, a unit, and a dash for what is undefined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DASH = "–"  # noqa: RUF001 (a dash is meant)

METRIC_NAMES = {
    "client_ttft_s": "client TTFT",
    "gateway_ttft_s": "gateway TTFT",
    "engine_ttft_s": "engine TTFT",
    "queue_s": "engine queue",
    "tpot_s": "TPOT",
    "itl_s": "ITL",
    "e2e_s": "end to end",
}
"""How the report calls each measure, in the order of its rows."""


def digits(value: float | None, count: int = 3) -> str:
    """The value with so many significant digits and thousands separators; a dash for None."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    # The exponent after rounding, so that 9.999 reads 10.0 and not 10.00.
    exponent = int(f"{value:.{count - 1}e}".partition("e")[2])
    return f"{value:,.{max(0, count - 1 - exponent)}f}"


def seconds(value_s: float | None) -> str:
    """A duration in the unit that suits it: "83.1 ms", "1.40 s", "412 s"; a dash for None."""
    if value_s is None:
        return DASH
    if value_s == 0:
        return "0 s"
    for unit, size_s in (("s", 1.0), ("ms", 1e-3)):
        if abs(value_s) >= size_s * 0.9995:
            return f"{digits(value_s / size_s)} {unit}"
    return f"{digits(value_s * 1e6)} µs"


def trace_remarks(about: Mapping[str, Any]) -> list[str]:
    """What must be said beside the name of a trace: that it is synthetic, what was done to it."""
    said = "synthetic" in about["trace"].lower()
    made_up = ["synthetic"] if about["trace_synthetic"] and not said else []
    return [*made_up, *about["transforms"]]


def bound(value_s: float) -> str:
    """A bound as its author would write it: "300 ms", "1 s", "2.5 s"."""
    return f"{value_s:g} s" if value_s >= 1 else f"{value_s * 1e3:g} ms"


def percent(fraction: float | None, count: int = 3) -> str:
    """A share of one with so many significant digits, as "41.3 %"; a dash for None.

    Only the whole reads "100 %": a share that would be rounded up to it reads ">99.9 %".
    """
    if fraction is None:
        return DASH
    text = digits(fraction * 100, count)
    if fraction < 1 and float(text.replace(",", "")) >= 100:
        text = f">{digits(99.9, count) if count > 2 else 99}"
    return f"{text} %"


def dollars(usd: float | None) -> str:
    """An amount of US dollars, to the cent or to two digits below one; a dash for None."""
    if usd is None:
        return DASH
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${digits(usd, 2)}"
