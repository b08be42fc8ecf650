"""A measured run: what was asked of one engine, when, and how long it took.

Two formats are recognised by content:

* per-request engine timestamps: a folder with ``requests.jsonl`` (request_id, input_toks,
  output_toks, arrival_time by the wall clock; queued_ts, scheduled_ts, first_token_ts,
  last_token_ts by the engine's monotonic clock) and perhaps ``meta.json`` with the engine's
  settings, or that ``requests.jsonl`` alone;
* the JSON file of ``vllm bench serve --save-result --save-detailed``, measured at the client.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetsim.traces.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

REQUESTS = "requests.jsonl"
META = "meta.json"
_BENCH_KEYS = ("start_times", "input_lens", "output_lens", "ttfts", "itls")
_STAMPS = ("arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
_COUNTS = ("input_toks", "output_toks")
_SETTINGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "block_size",
    "num_gpu_blocks",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "async_scheduling",
    "gpu_memory_utilization",
    "scheduler_reserve_full_isl",
)
_LONGEST_RUN_S = 1e7


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRun:
    """One run, its requests in order of arrival.

    Attributes:
        path: the file or folder it was read from.
        at_client: whether latencies were measured at an HTTP client, beyond the API server.
        arrival_s: since the first arrival.
        prompt_tokens, output_tokens: of each request.
        ttft_s, e2e_s: from arrival to the first and to the last token.
        queue_s: time that each request waited in the scheduler's queue, or None where unknown.
        engine_ttft_s: from the first schedule to the first token, or None where unknown.
        itl_s: gaps between tokens as the client saw them, of all requests, or None.
        settings: the engine's settings as far as the run states them, by their vLLM names.
        failed: requests in the file that failed and are left out.
    """

    path: Path
    at_client: bool
    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    ttft_s: Floats
    e2e_s: Floats
    queue_s: Floats | None
    engine_ttft_s: Floats | None
    itl_s: Floats | None
    settings: Mapping[str, Any]
    failed: int = 0

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def name(self) -> str:
        """What tells it from other runs: its folder where the file has the usual name."""
        return self.path.resolve().parent.name if self.path.name == REQUESTS else self.path.name


def read_run(path: Path) -> MeasuredRun:
    """Reads a measured run.

    Raises:
        InputError: nothing is there, the format is neither of the two, a field is missing or
            impossible, or timestamps contradict each other.
    """
    if path.is_dir():
        requests = path / REQUESTS
        if not requests.is_file():
            raise InputError(f"{path}: has no {REQUESTS}; give a run's folder or file")
        return _from_requests(requests, path / META)
    text = _text(path)
    bench = _bench(text)
    if bench is not None:
        return _from_bench(path, bench)
    return _from_requests(path, path.with_name(META))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _bench(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    is_bench = isinstance(value, dict) and ("ttfts" in value or "request_throughput" in value)
    return value if is_bench else None


def _from_bench(path: Path, bench: dict[str, Any]) -> MeasuredRun:
    for key in _BENCH_KEYS:
        if not isinstance(bench.get(key), list):
            raise InputError(
                f"{path}: {key}: this list is missing; record with "
                "vllm bench serve --save-result --save-detailed"
            )
    lists = [bench[key] for key in _BENCH_KEYS]
    if len({len(values) for values in lists}) != 1:
        raise InputError(f"{path}: {', '.join(_BENCH_KEYS)} differ in length; the file is damaged")
    errors = bench.get("errors") or [""] * len(lists[0])
    rows = [
        (start, n_in, n_out, ttft, gaps)
        for start, n_in, n_out, ttft, gaps, error in zip(*lists, errors, strict=True)
        if not error and n_out
    ]
    if not rows:
        raise InputError(f"{path}: no request succeeded")
    try:
        start_s, n_in, n_out, ttft_s = np.array([row[:4] for row in rows], dtype=np.float64).T
        span_s = np.array([sum(row[4]) for row in rows], dtype=np.float64)
        itl_s = np.array([gap for row in rows for gap in row[4]], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: a length or time is not a number: {error}") from error
    return _checked(
        path,
        at_client=True,
        arrival_s=start_s - start_s.min(),
        counts=(n_in, n_out),
        ttft_s=ttft_s,
        e2e_s=ttft_s + span_s,
        queue_s=None,
        engine_ttft_s=None,
        itl_s=itl_s,
        settings={},
        failed=len(lists[0]) - len(rows),
    )


def _from_requests(path: Path, meta: Path) -> MeasuredRun:
    rows = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if line.strip():
            rows.append(_row(path, number, line))
    if not rows:
        raise InputError(f"{path}: has no requests")
    arrival, queued, scheduled, first, last, n_in, n_out = np.array(rows, dtype=np.float64).T
    for earlier, later, names in (
        (queued, scheduled, "scheduled_ts is before queued_ts"),
        (scheduled, first, "first_token_ts is before scheduled_ts"),
        (first, last, "last_token_ts is before first_token_ts"),
    ):
        if (later < earlier).any():
            raise InputError(f"{path}: line {int((later < earlier).argmax()) + 1}: {names}")
    # Two clocks. Of the requests, the one that reached the queue fastest gives their offset: it
    # took no time. So the others' way to the queue, which is waiting for the step in flight, is
    # part of their TTFT, as it is for those who sent them.
    offset = float((arrival - queued).max())
    return _checked(
        path,
        at_client=False,
        arrival_s=arrival - arrival.min(),
        counts=(n_in, n_out),
        ttft_s=first - (arrival - offset),
        e2e_s=last - (arrival - offset),
        queue_s=scheduled - queued,
        engine_ttft_s=first - scheduled,
        itl_s=None,
        settings=_meta_settings(meta),
        failed=0,
    )


def _row(path: Path, number: int, line: str) -> list[float]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(
            f"{path}: line {number}: is not JSON ({error}); the file is cut off or no {REQUESTS}"
        ) from error
    values = []
    for key in (*_STAMPS, *_COUNTS):
        value = row.get(key) if isinstance(row, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(
                f"{path}: line {number}: {key} is {value!r}; each line needs the numbers "
                f"{', '.join((*_STAMPS, *_COUNTS))}"
            )
        values.append(float(value))
    return values


def _checked(path: Path, *, counts: tuple[Floats, Floats], **columns: Any) -> MeasuredRun:
    n_in, n_out = counts
    for name, values in (("prompt tokens", n_in), ("output tokens", n_out)):
        bad = ~np.isfinite(values) | (values < 1) | (values != np.floor(values))
        if bad.any():
            where = int(bad.argmax())
            raise InputError(
                f"{path}: request {where + 1}: {name} are {values[where]:g}; "
                "give whole numbers of at least 1"
            )
    for name in ("arrival_s", "ttft_s", "e2e_s"):
        values = columns[name]
        bad = ~np.isfinite(values) | (values < 0) | (values > _LONGEST_RUN_S)
        if bad.any():
            where = int(bad.argmax())
            raise InputError(
                f"{path}: request {where + 1}: {name} is {values[where]:g}; times must be "
                "finite seconds, not below 0 and not years long"
            )
    order = np.argsort(columns["arrival_s"], kind="stable")
    for name in ("arrival_s", "ttft_s", "e2e_s", "queue_s", "engine_ttft_s"):
        if columns[name] is not None:
            columns[name] = columns[name][order]
    return MeasuredRun(
        path=path,
        prompt_tokens=n_in[order].astype(np.int64),
        output_tokens=n_out[order].astype(np.int64),
        **columns,
    )


def _meta_settings(path: Path) -> dict[str, Any]:
    """What ``meta.json`` says of the engine; of several places, the most resolved one."""
    if not path.is_file():
        return {}
    try:
        meta = json.loads(_text(path))
    except ValueError as error:
        raise InputError(f"{path}: is not JSON: {error}") from error
    if not isinstance(meta, dict):
        raise InputError(f"{path}: is not a JSON object")
    resolved = meta.get("resolved_config") or {}
    places = [
        meta.get("engine_kwargs"),
        meta.get("kv_cache"),
        resolved.get("model_config"),
        resolved.get("cache_config"),
        resolved.get("scheduler_config"),
    ]
    found: dict[str, Any] = {}
    for place in places:
        if isinstance(place, dict):
            found.update({k: place[k] for k in _SETTINGS if place.get(k) is not None})
    return found
