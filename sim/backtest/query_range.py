"""Answers of Prometheus' HTTP API to query_range: one, a list of them, or one after another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetsim.sim.backtest.prometheus_dump import WANTED, DumpBuilder, canonical_name
from fleetsim.traces.errors import InputError


def read_answers(path: Path, text: str, builder: DumpBuilder) -> None:
    """Add all series of vLLM in a file's answers; other series are passed over.

    Raises:
        InputError: the JSON is cut off, is no answer to query_range, or says an error.
    """
    for number, answer in enumerate(_answers(path, text), 1):
        where = f"{path}: answer {number}"
        if not isinstance(answer, dict) or "status" not in answer:
            raise InputError(f"{where}: has no status; give what /api/v1/query_range answered")
        if answer["status"] != "success":
            said = f"{answer.get('errorType', '')}: {answer.get('error', '')}".strip(": ")
            raise InputError(f"{where}: Prometheus answered with an error: {said or 'not said'}")
        data = answer.get("data")
        kind = data.get("resultType") if isinstance(data, dict) else None
        if not isinstance(data, dict) or kind != "matrix" or not isinstance(data["result"], list):
            raise InputError(
                f"{where}: resultType is {kind!r}, must be 'matrix'; ask /api/v1/query_range with "
                "start, end and step"
            )
        for index, result in enumerate(data["result"], 1):
            _add(f"{where}, result {index}", result, builder)


def _answers(path: Path, text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    at, end = 0, len(text)
    while at < end:
        while at < end and text[at].isspace():
            at += 1
        if at == end:
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError as error:
            line = getattr(error, "lineno", 0)
            raise InputError(
                f"{path}: line {line}: is not whole JSON ({error}); the file is cut off or damaged"
            ) from None
        yield from value if isinstance(value, list) else [value]


def _add(where: str, result: Any, builder: DumpBuilder) -> None:
    labels = result.get("metric") if isinstance(result, dict) else None
    if not isinstance(labels, dict):
        raise InputError(f"{where}: has no metric; the file is damaged")
    labels = {str(name): str(value) for name, value in labels.items()}
    name = canonical_name(labels.pop("__name__", ""))
    if not name:
        raise InputError(
            f"{where}: has no __name__, so it is of an expression; export the series themselves, "
            "without sum, rate or histogram_quantile"
        )
    if name not in WANTED:
        return
    values = result.get("values")
    if not isinstance(values, list):
        what = "a native histogram" if "histograms" in result else "without values"
        raise InputError(f"{where}: {name} is {what}; classic series with values are needed")
    try:
        times_s = [float(time) for time, _ in values]
        numbers = [float(value) for _, value in values]
    except (TypeError, ValueError):
        raise InputError(
            f'{where}: {name}: a sample is not [time, "value"]; the file is damaged'
        ) from None
    builder.add(where, name, labels, times_s, numbers)
