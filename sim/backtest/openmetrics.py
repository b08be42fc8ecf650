"""OpenMetrics text with times, as `promtool tsdb dump-openmetrics` writes it: read and written.

Read here and not with prometheus_client's parser (0.26), because that one refuses what promtool
may write, series of one metric that are not all together ("Clashing name"), and of a histogram with
several times silently keeps one sample of each time but the first. It names no line either. In the
tests it is the reference for what is written here, one time at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fleetsim.sim.backtest.prometheus_dump import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    WANTED,
    Dump,
    DumpBuilder,
    Labels,
    Series,
    canonical_name,
    replica_of,
)
from fleetsim.traces.errors import InputError

_EOF = "# EOF"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\.)*)"\s*(,|})')
_ESCAPED = re.compile(r"\\(.)")
_EXPORT = "promtool tsdb dump-openmetrics"


def read_openmetrics(path: Path, text: str, builder: DumpBuilder) -> None:
    """Add all series of vLLM in a file; other lines are passed over.

    Raises:
        InputError: a line cannot be read or has no time, or the end of the file is missing.
    """
    lines = text.splitlines()
    if not lines or lines[-1] != _EOF:
        raise InputError(
            f"{path}: does not end with '{_EOF}'; it is cut off, or is neither an answer of "
            f"query_range nor what {_EXPORT} writes"
        )
    found: dict[tuple[str, str], tuple[int, list[float], list[float]]] = {}
    for number, line in enumerate(lines, 1):
        if not line or line[0] == "#":
            continue
        if line.startswith("{__name__="):
            raise InputError(f"{path}: line {number}: is of promtool tsdb dump; use {_EXPORT}")
        match = _NAME.match(line)
        if match is None:
            raise _error(path, number, line)
        name = canonical_name(match[0])
        if name not in WANTED:
            continue
        end = _labels_end(line, match.end())
        numbers = line[end:].split(" # ")[0].split()
        if len(numbers) == 1:
            raise InputError(
                f"{path}: line {number}: {name} has no time; a page of /metrics is one moment, "
                f"export a span of time with {_EXPORT} or query_range"
            )
        try:
            value, time_s = (float(part) for part in numbers)
        except ValueError:
            raise _error(path, number, line) from None
        key = (name, line[match.end() : end])
        _, times_s, values = found.setdefault(key, (number, [], []))
        times_s.append(time_s)
        values.append(value)
    for (name, labels), (number, times_s, values) in found.items():
        where = f"{path}: line {number}"
        builder.add(where, name, _labels(where, labels), times_s, values)


def _error(path: Path, number: int, line: str) -> InputError:
    return InputError(f"{path}: line {number}: {line[:80]!r} is not 'name{{labels}} value time'")


def _labels_end(line: str, start: int) -> int:
    """Where the labels end: behind the first closing brace outside of quotes."""
    if line[start : start + 1] != "{":
        return start
    if " # " not in line:  # no exemplar, which has labels of its own
        return line.rfind("}") + 1
    at = start + 1
    while True:
        match = _LABEL.match(line, at)
        if match is None:
            closing = line.find("}", at)
            return closing + 1 if closing >= 0 else len(line)
        at = match.end()
        if match[3] == "}":
            return at


def _labels(where: str, text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    at = 1
    while at < len(text) and text[at] != "}":
        match = _LABEL.match(text, at)
        if match is None:
            raise InputError(f'{where}: labels {text[:80]!r} are not {{name="value",...}}')
        labels[match[1]] = _ESCAPED.sub(lambda m: "\n" if m[1] == "n" else m[1], match[2])
        at = match.end()
    return labels


_HELP = {
    HISTOGRAMS[0]: "Time from arrival at the API server to the first token.",
    HISTOGRAMS[1]: "Time from one token of a request to its next.",
    GAUGES[0]: "Requests in the running batch.",
    GAUGES[1]: "Requests waiting to be scheduled.",
    GAUGES[2]: "Share of the KV cache's blocks in use, 0 to 1.",
    COUNTERS[0]: "Prompt tokens looked up in the prefix cache.",
    COUNTERS[1]: "Prompt tokens found in the prefix cache.",
    COUNTERS[2]: "Prompt tokens of requests that got their first token.",
    COUNTERS[3]: "Output tokens.",
    COUNTERS[4]: "Requests that ended, by reason.",
}


def openmetrics_text(dump: Dump) -> Iterator[str]:
    """The dump as OpenMetrics text, in pieces: valid, times rising within each replica."""
    for name in HISTOGRAMS:
        yield _header(name, "histogram")
        parts = [(name + part, dump.of(name + part)) for part in ("_bucket", "_count", "_sum")]
        yield from _samples(parts)
    for name in GAUGES:
        yield _header(name, "gauge")
        yield from _samples([(name, dump.of(name))])
    for name in COUNTERS:
        if dump.of(name):
            yield _header(name, "counter")
            yield from _samples([(name, dump.of(name))])
    yield _EOF + "\n"


def _header(name: str, kind: str) -> str:
    family = name.removesuffix("_total") if kind == "counter" else name
    return f"# HELP {family} {_HELP[name]}\n# TYPE {family} {kind}\n"


def _samples(parts: list[tuple[str, dict[Labels, Series]]]) -> Iterator[str]:
    replicas: dict[Labels, list[tuple[str, Series]]] = {}
    for name, by_labels in parts:
        for labels, one in sorted(by_labels.items(), key=_bound):
            group = replica_of(labels) if name.endswith("_bucket") else labels
            replicas.setdefault(group, []).append((name + _label_text(labels), one))
    for members in replicas.values():
        bounds = [(prefix, one.times_s.tolist(), one.values.tolist()) for prefix, one in members]
        for index in range(max(len(times_s) for _, times_s, _ in bounds)):
            yield "".join(
                f"{prefix} {_number(values[index])} {times_s[index]:.3f}\n"
                for prefix, times_s, values in bounds
                if index < len(times_s)
            )


def _bound(entry: tuple[Labels, Series]) -> float:
    """Buckets are written by rising bound; everything else stays as it is."""
    return float(dict(entry[0]).get("le", "0"))


def _number(value: float) -> str:
    return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _label_text(labels: Labels) -> str:
    quoted = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in labels
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in quoted) + "}"


def le_text(bound_s: float) -> str:
    """A bucket's upper bound as vLLM writes it: '0.001', '1.0', '+Inf'."""
    return "+Inf" if np.isinf(bound_s) else repr(float(bound_s))
