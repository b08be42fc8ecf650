"""Reads a measured run: what was asked of one engine, when, and how long it took.

Three formats are recognised by content:

* per-request engine timestamps: a folder with ``requests.jsonl`` (request_id, input_toks,
  output_toks, arrival_time by the wall clock; queued_ts, scheduled_ts, first_token_ts,
  last_token_ts by the engine's monotonic clock) and perhaps ``meta.json`` with the engine's
  settings, or that ``requests.jsonl`` alone;
* the stats file of ``fleetsim calibrate record``, or the step file beside it (``stats_run.py``);
* the JSON file of ``vllm bench serve --save-result --save-detailed``, measured at the client
  (``bench_json.py``).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.calibration import stats_file, step_file
from fleetsim.calibration.recording import first_line
from fleetsim.sim.backtest.bench_json import is_bench, read_bench
from fleetsim.sim.backtest.measured_run import (
    REQUESTS,
    Floats,
    Ints,
    MeasuredRun,
    Origin,
    checked_run,
)
from fleetsim.sim.backtest.stats_run import read_stats_run
from fleetsim.traces.errors import InputError

__all__ = ["REQUESTS", "Floats", "Ints", "MeasuredRun", "Origin", "read_run"]

META = "meta.json"
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


def read_run(path: Path) -> MeasuredRun:
    """Reads a measured run.

    Raises:
        InputError: nothing is there, the format is none of the three, a field is missing or
            impossible, or timestamps contradict each other.
    """
    if path.is_dir():
        requests = path / REQUESTS
        if not requests.is_file():
            raise InputError(f"{path}: has no {REQUESTS}; give a run's folder or file")
        return _from_requests(requests, path / META)
    text = _text(path)
    first = first_line(text)
    written_by = first.get("format") if isinstance(first, dict) else None
    if written_by == stats_file.FORMAT:
        return read_stats_run(path)
    if written_by == step_file.FORMAT:
        return read_stats_run(_beside(path))
    bench = _bench(path, text)
    if bench is not None:
        return read_bench(path, bench)
    return _from_requests(path, path.with_name(META))


def _beside(steps: Path) -> Path:
    """The stats file that was recorded together with a step file, which holds no requests."""
    stats = stats_file.path_beside(steps)
    if not stats.is_file():
        raise InputError(
            f"{steps}: holds steps, and no {stats.name} with the requests lies beside it; give the "
            "file that FLEETSIM_STATS_FILE named, see fleetsim calibrate record"
        )
    return stats


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _bench(path: Path, text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError as error:
        if '"ttfts"' not in text and '"request_throughput"' not in text:
            return None
        results = sum(is_bench(first_line(line)) for line in text.splitlines())
        if results > 1:
            raise InputError(
                f"{path}: holds {results} results (--append-result); give a file for each"
            ) from error
        raise InputError(f"{path}: is cut off or damaged: {error}") from error
    return value if is_bench(value) else None


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
    stated = _meta(meta)
    # Two clocks. Of the requests, the one that reached the queue fastest gives their offset: it
    # took no time. So the others' way to the queue, which is waiting for the step in flight, is
    # part of their TTFT, as it is for those who sent them.
    offset = float((arrival - queued).max())
    return checked_run(
        path,
        at_client=False,
        arrival_s=arrival - arrival.min(),
        counts=(n_in, n_out),
        ttft_s=first - (arrival - offset),
        e2e_s=last - (arrival - offset),
        queue_s=scheduled - queued,
        engine_ttft_s=first - scheduled,
        itl_s=None,
        settings=_settings(stated),
        failed=0,
        origin=_origin(stated),
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


def _meta(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        meta = json.loads(_text(path))
    except ValueError as error:
        raise InputError(f"{path}: is not JSON: {error}") from error
    if not isinstance(meta, dict):
        raise InputError(f"{path}: is not a JSON object")
    return meta


def _origin(meta: dict[str, Any]) -> Origin:
    engine, hardware = meta.get("engine_kwargs"), meta.get("hardware")
    size = engine.get("tensor_parallel_size") if isinstance(engine, dict) else None
    gpu = hardware.get("device_name") if isinstance(hardware, dict) else None
    texts = (meta.get("model"), gpu, meta.get("vllm_version"))
    model, gpu, version = (text if isinstance(text, str) else None for text in texts)
    return Origin(model, gpu, version, size if isinstance(size, int) else None)


def _settings(meta: dict[str, Any]) -> dict[str, Any]:
    """What ``meta.json`` says of the engine; of several places, the most resolved one."""
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
