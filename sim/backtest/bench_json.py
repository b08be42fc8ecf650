"""Reads the result of ``vllm bench serve --save-result --save-detailed``.

One JSON object: what the client was told (``model_id``, ``request_rate``, ``max_concurrency``,
``burstiness``), totals, and one entry per request in ``start_times``, ``input_lens``,
``output_lens``, ``ttfts`` and ``itls`` (seconds between the chunks of its answer). ``--metadata
gpu=H200 vllm_version=0.32.0 tensor_parallel_size=1`` adds what the client does not know.
"""

from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.sim.backtest.measured_run import Floats, MeasuredRun, Origin, checked_run
from fleetsim.traces.errors import InputError

_LISTS = ("start_times", "input_lens", "output_lens", "ttfts", "itls")
_LARGEST_UNEVEN_SHARE = 0.05
"""Of requests whose chunks are not one token each, and of chunks that arrive together: beyond it,
the gaps between chunks say little about steps."""

_AT_ONCE_S = 2e-5
"""Chunks this close were read together: no step is so short."""

_MOST_TOKENS_PER_CHUNK = 1.5
_LIKE_RATIO = 2.0
"""Within what the lists must agree with the file's own totals: it tells milliseconds apart."""


def is_bench(value: Any) -> bool:
    """Whether a JSON value is such a result."""
    return isinstance(value, dict) and ("ttfts" in value or "request_throughput" in value)


def read_bench(path: Path, bench: dict[str, Any]) -> MeasuredRun:
    """The run as its client saw it; requests that failed are left out and counted.

    Raises:
        InputError: lists are missing or differ in length, a value is impossible or contradicts the
            file's totals, no request succeeded, or tokens came several to a chunk.
    """
    for key in _LISTS:
        if not isinstance(bench.get(key), list):
            raise InputError(
                f"{path}: {key}: this list is missing; record with "
                "vllm bench serve --save-result --save-detailed"
            )
    lists = [bench[key] for key in _LISTS]
    errors = bench.get("errors") or [""] * len(lists[0])
    if len({len(values) for values in (*lists, errors)}) != 1:
        raise InputError(f"{path}: {', '.join(_LISTS)} differ in length; the file is damaged")
    if any(key.startswith("spec_decode") for key in bench):
        raise InputError(f"{path}: was measured with speculative decoding, which is not simulated")
    waits = bench.get("queue_times") or [0.0] * len(lists[0])
    if len(waits) != len(lists[0]):
        raise InputError(f"{path}: queue_times differ from the others in length")
    rows = [
        (start, n_in, n_out, ttft, wait, gaps)
        for start, n_in, n_out, ttft, gaps, wait, error in zip(*lists, waits, errors, strict=True)
        if not error and n_out
    ]
    if not rows:
        raise InputError(f"{path}: no request succeeded")
    try:
        start_s, n_in, n_out, ttft_s, wait_s = np.array([r[:5] for r in rows], dtype=np.float64).T
        span_s = np.array([sum(row[5]) for row in rows], dtype=np.float64)
        chunks = np.array([1 + len(row[5]) for row in rows], dtype=np.float64)
        itl_s = np.array([gap for row in rows for gap in row[5]], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: a length or time is not a number: {error}") from error
    if not np.isfinite(itl_s).all() or (itl_s < 0).any():
        raise InputError(f"{path}: itls: a gap is below 0 or not finite")
    unsuited = _unsuited_gaps(path, n_out, chunks, itl_s)
    run = checked_run(
        path,
        at_client=True,
        arrival_s=start_s - start_s.min(),
        counts=(n_in, n_out),
        ttft_s=ttft_s,
        e2e_s=ttft_s + span_s,
        queue_s=None,
        engine_ttft_s=None,
        itl_s=None if unsuited else itl_s,
        settings={},
        failed=len(lists[0]) - len(rows),
        origin=_origin(path, bench),
        request_rate=_positive(path, bench, "request_rate"),
        max_concurrency=_concurrency(path, bench),
        client_queue_s=wait_s if bench.get("queue_times") else None,
        remarks=(unsuited,) if unsuited else (),
    )
    _positive(path, bench, "burstiness")
    _check_totals(path, bench, run, itl_s)
    return run


def _unsuited_gaps(path: Path, n_out: Floats, chunks: Floats, itl_s: Floats) -> str | None:
    """Why the gaps between chunks are not gaps between tokens, if so."""
    tokens_per_chunk = float(n_out.sum() / chunks.sum())
    if tokens_per_chunk > _MOST_TOKENS_PER_CHUNK:
        raise InputError(
            f"{path}: {tokens_per_chunk:.1f} tokens came in a chunk: speculative decoding or "
            "--stream-interval, neither of which is simulated; measure without"
        )
    uneven = float(np.mean(chunks != n_out))
    together = float(np.mean(itl_s <= _AT_ONCE_S)) if len(itl_s) else 0.0
    if uneven > _LARGEST_UNEVEN_SHARE:
        return (
            f"{path.name}: {uneven:.0%} of the answers have more or fewer chunks than tokens, so "
            "ITL is not compared; TTFT and TPOT are"
        )
    if together > _LARGEST_UNEVEN_SHARE:
        return (
            f"{path.name}: {together:.0%} of the chunks reached the client together with the one "
            "before, so ITL is not compared; TTFT and TPOT are"
        )
    return None


def _check_totals(path: Path, bench: dict[str, Any], run: MeasuredRun, itl_s: Floats) -> None:
    """Lists in other units than the file's own totals are not in seconds."""
    makespan_s = float((run.arrival_s + run.e2e_s).max())
    pairs = [
        ("ttfts", float(run.ttft_s.mean()), bench.get("mean_ttft_ms"), 1e-3),
        ("itls", float(itl_s.mean()) if len(itl_s) else 0.0, bench.get("mean_itl_ms"), 1e-3),
        ("start_times and times", makespan_s, bench.get("duration"), 1),
    ]
    for name, listed_s, total, unit_s in pairs:
        if isinstance(total, int | float) and not isinstance(total, bool) and total > 0 < listed_s:
            ratio = listed_s / (total * unit_s)
            if not 1 / _LIKE_RATIO <= ratio <= _LIKE_RATIO:
                raise InputError(
                    f"{path}: {name} come to {listed_s:.4g} s, but the file's own total says "
                    f"{total * unit_s:.4g} s; give whole files, with times in seconds"
                )


def _positive(path: Path, bench: dict[str, Any], key: str) -> float | None:
    value = bench.get(key)
    if value is None:
        return None
    if value == "inf":
        return inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{path}: {key} is {value!r}; it must be a number above 0, or inf")
    return float(value)


def _concurrency(path: Path, bench: dict[str, Any]) -> int | None:
    value = bench.get("max_concurrency")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{path}: max_concurrency is {value!r}; it must be at least 1, or null")
    return value


def _origin(path: Path, bench: dict[str, Any]) -> Origin:
    texts = {}
    for key in ("model_id", "gpu", "vllm_version"):
        value = bench.get(key)
        if value is not None and not isinstance(value, str):
            raise InputError(f"{path}: {key} is {value!r}; it must be text")
        texts[key] = value
    size = bench.get("tensor_parallel_size")
    try:
        size = None if size is None else int(size)
    except (TypeError, ValueError):
        raise InputError(f"{path}: tensor_parallel_size is {size!r}, not a number") from None
    return Origin(texts["model_id"], texts["gpu"], texts["vllm_version"], size)
