"""Results of ``vllm bench serve --save-result --save-detailed``: what the tool sent, as a trace.

``input_lens``, ``output_lens`` and ``start_times`` (seconds on some clock) have one entry
per request. Failed requests have an output length of 0 and are dropped as ``zero_output``. Older
results have no ``start_times``: give them with ``load_trace(path, arrivals_s=...)``. Where the tool
held back requests (``max_concurrency``), the times are those of that server's run; a warning says
so. Nothing is said about shared prefixes.

Format: vllm/benchmarks/serve.py of https://github.com/vllm-project/vllm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.jsonl_rows import read_document
from fleetsim.traces.sources.record import Record
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows


def _read(content: Content, layout: Layout) -> Rows:
    result = read_document(content)
    prompts, outputs = (
        _column(content, result, "input_lens"),
        _column(content, result, "output_lens"),
    )
    timed = result.get("start_times") is not None
    stamps = _column(content, result, "start_times") if timed else [0] * len(prompts)
    if not len(prompts) == len(outputs) == len(stamps):
        counts = f"{len(prompts)} input_lens, {len(outputs)} output_lens, {len(stamps)} start_times"
        raise content.error(f"has {counts}; must be as many of each")
    rows = [
        Record(content, 1, {"input": i, "output": o, "start": t}, f"request {number}: ")
        for number, (i, o, t) in enumerate(zip(prompts, outputs, stamps, strict=True))
    ]
    limit = result.get("max_concurrency")
    warning = (
        f"the tool had at most {limit} requests under way (max_concurrency): start times depend on "
        "the server that was measured"
    )
    return Rows(
        stamps=np.array([row.number("start", "seconds") for row in rows], dtype=np.float64),
        ticks_per_s=1,
        prompt_tokens=np.array([row.whole("input") for row in rows], dtype=np.int64),
        output_tokens=np.array([row.whole("output") for row in rows], dtype=np.int64),
        line_numbers=np.arange(1, len(rows) + 1),
        has_arrivals=timed,
        warnings=() if limit is None else (warning,),
    )


def _column(content: Content, result: Mapping[str, Any], name: str) -> list[Any]:
    values = result.get(name)
    if not isinstance(values, list):
        text = f"lacks {name}, a list; run vllm bench serve with --save-result --save-detailed"
        raise content.error(text)
    return values


def _recognise(layout: Layout) -> bool:
    return bool(layout.rows) and isinstance(layout.rows[0].get("input_lens"), list)


BENCH_SERVE = TraceFormat(
    name="bench_serve",
    about="detailed results of vllm bench serve",
    kinds=("JSONL", "JSON"),
    required=("input_lens",),
    optional=(),
    read=_read,
    recognise=_recognise,
    checks_columns=True,
)
