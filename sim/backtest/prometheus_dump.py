"""Series of vLLM's metrics over time: what a Prometheus export holds, or a simulated run leaves."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fleetsim.traces.errors import InputError

Floats = npt.NDArray[np.float64]
Labels = tuple[tuple[str, str], ...]

TTFT = "vllm:time_to_first_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USAGE = "vllm:kv_cache_usage_perc"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATION_TOKENS = "vllm:generation_tokens_total"
SUCCESS = "vllm:request_success_total"

HISTOGRAMS = (TTFT, ITL)
GAUGES = (RUNNING, WAITING, KV_USAGE)
COUNTERS = (PREFIX_QUERIES, PREFIX_HITS, PROMPT_TOKENS, GENERATION_TOKENS, SUCCESS)
NEEDED = (*(h + part for h in HISTOGRAMS for part in ("_bucket", "_sum", "_count")), *GAUGES)

_OLDER = {
    ITL: "vllm:time_per_output_token_seconds",
    KV_USAGE: "vllm:gpu_cache_usage_perc",
    PREFIX_QUERIES: "vllm:gpu_prefix_cache_queries_total",
    PREFIX_HITS: "vllm:gpu_prefix_cache_hits_total",
}
_PARTS = ("_bucket", "_sum", "_count")
WANTED = frozenset(
    [*NEEDED, *COUNTERS]
    + [_OLDER[ITL] + part for part in _PARTS]
    + [older for name, older in _OLDER.items() if name != ITL]
)
"""Every metric that is read, by its name in Prometheus, older names included."""

# Labels that tell one series of a replica from another, and not one replica from another.
_WITHIN_REPLICA = ("le", "finished_reason")
_LATEST_EPOCH_S = 1e11  # the year 5138; in milliseconds this was 1973


@dataclass(frozen=True, slots=True)
class Series:
    """One series: times in seconds since 1970, rising, and a value each; NaN is a stale marker."""

    times_s: Floats
    values: Floats


@dataclass(slots=True)
class Dump:
    """Series by metric and labels.

    Attributes:
        name: what it is called in messages.
        series: by the metric's current name, then by its labels, sorted by name.
    """

    name: str
    series: dict[str, dict[Labels, Series]] = field(default_factory=dict)

    def of(self, metric: str) -> dict[Labels, Series]:
        """All series of a metric, none if it is not here."""
        return self.series.get(metric, {})

    def models(self) -> list[str]:
        """Values of the label model_name; "" where a series has none."""
        names = {dict(labels).get("model_name", "") for labels in self.of(RUNNING)}
        return sorted(names)

    def of_model(self, model: str) -> Dump:
        """The series of one model."""
        kept = {
            metric: {
                labels: one
                for labels, one in series.items()
                if dict(labels).get("model_name", "") == model
            }
            for metric, series in self.series.items()
        }
        return Dump(self.name, kept)


def replica_of(labels: Labels) -> Labels:
    """What tells a replica from others: every label but those within a histogram or counter."""
    return tuple((name, value) for name, value in labels if name not in _WITHIN_REPLICA)


def replica_name(replica: Labels) -> str:
    """A replica as messages call it."""
    values = dict(replica)
    for label in ("pod", "instance", "engine"):
        if label in values:
            engine = values.get("engine", "0")
            return values[label] + (f" engine {engine}" if engine != "0" else "")
    return "the only one"


def canonical_name(name: str) -> str:
    """vLLM's own spelling: exporters that may not write a colon make an underscore of it."""
    return re.sub("^vllm_", "vllm:", name)


class DumpBuilder:
    """Collects samples, from any number of files, into a `Dump`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: dict[str, dict[Labels, list[tuple[str, list[float], list[float]]]]] = {}

    def add(
        self,
        where: str,
        metric: str,
        labels: dict[str, str],
        times_s: list[float],
        values: list[float],
    ) -> None:
        """Samples of one series, as one place has them.

        Args:
            where: file and line, or file and number of the result, for messages.
            metric: one of `WANTED`.
            labels: without the metric's name.
            times_s, values: equally many.

        Raises:
            InputError: times that do not rise, or are no seconds since 1970.
        """
        if not times_s:
            return  # a series without samples says nothing
        if max(times_s) > _LATEST_EPOCH_S:
            raise InputError(
                f"{where}: {metric}: the time {max(times_s):.0f} is in milliseconds; times must be "
                "in seconds since 1970, as query_range and OpenMetrics have them"
            )
        by_labels = self._found.setdefault(metric, {})
        by_labels.setdefault(tuple(sorted(labels.items())), []).append((where, times_s, values))

    def build(self) -> Dump:
        """All that was added, under current names.

        Raises:
            InputError: metrics are missing, or two places contradict each other.
        """
        series = {
            metric: {labels: _merged(metric, places) for labels, places in sorted(found.items())}
            for metric, found in sorted(self._found.items())
        }
        for name, older in _OLDER.items():
            for part in _PARTS if name == ITL else ("",):
                replaced = series.pop(older + part, None)
                if replaced is not None:
                    series.setdefault(name + part, replaced)
        missing = [name for name in NEEDED if not series.get(name)]
        if missing:
            found_text = ", ".join(series) or "no series of vLLM"
            raise InputError(
                f"{self._name}: {', '.join(missing)} missing; export these series themselves, "
                f"not expressions of them (found: {found_text})"
            )
        return Dump(self._name, series)


def _merged(metric: str, places: list[tuple[str, list[float], list[float]]]) -> Series:
    """One series of several pieces, in order of time; the same sample may be there twice."""
    times_s = np.array([t for _, times, _ in places for t in times], dtype=np.float64)
    values = np.array([v for _, _, values in places for v in values], dtype=np.float64)
    where = places[-1][0]
    if not np.isfinite(times_s).all():
        raise InputError(f"{where}: {metric}: a time is not a finite number")
    if np.isinf(values).any() or (values < 0).any():
        bad = float(values[np.isinf(values) | (values < 0)][0])
        raise InputError(f"{where}: {metric}: the value {bad:g}; must be a number from 0")
    order = np.argsort(times_s, kind="stable")
    times_s, values = times_s[order], values[order]
    twice = np.diff(times_s) == 0
    if twice.any():
        before, after = values[:-1][twice], values[1:][twice]
        unlike = ~((before == after) | (np.isnan(before) & np.isnan(after)))
        if unlike.any():
            at = int(np.flatnonzero(twice)[unlike.argmax()])
            raise InputError(
                f"{where}: {metric}: at {times_s[at]:.3f} there are two values, {values[at]:g} and "
                f"{values[at + 1]:g}, with the same labels; the series of two replicas look alike, "
                "so export them with the label instance or pod"
            )
        keep = np.r_[True, ~twice]
        times_s, values = times_s[keep], values[keep]
    return Series(times_s, values)


def read_dump(path: Path) -> Dump:
    """Read an export: query_range answers or OpenMetrics text, told apart by content.

    A folder is read file by file, in order of name; hidden files are left out.

    Raises:
        InputError: nothing is there, a file is neither, is cut off or holds an error answer;
            series are missing or contradict each other.
    """
    from fleetsim.sim.backtest.openmetrics import read_openmetrics
    from fleetsim.sim.backtest.query_range import read_answers

    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))
        if not files:
            raise InputError(f"{path}: the folder is empty; give an export of Prometheus")
    builder = DumpBuilder(str(path))
    for file in files:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{file}: is not UTF-8 text (byte {error.start})") from None
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror}") from None
        if text.lstrip()[:1] in ("{", "[") and not text.lstrip().startswith("{__name__="):
            read_answers(file, text, builder)
        else:
            read_openmetrics(file, text, builder)
    return builder.build()
