"""Traces of Vidur: CSV ``arrived_at,num_prefill_tokens,num_decode_tokens``, arrivals in seconds.

Its length files (the arXiv summarization one) have no ``arrived_at``. A trace needs arrivals, and
none are made up here: ``load_trace(path, arrivals_s=...)`` takes one time per row.

``num_total_tokens`` is checked to be the sum; ``pd_ratio`` follows from the two and is left aside.
Nothing is said about shared prefixes. Lengths of the arXiv file are cut at a total of 4096.

Source: https://github.com/microsoft/vidur, data/processed_traces (MIT).
"""

from __future__ import annotations

import numpy as np

from fleetsim.traces.schema import IntArray
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import read_batches
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

_TOTAL = "num_total_tokens"


def _read(content: Content, layout: Layout) -> Rows:
    assert layout.header is not None
    timed = "arrived_at" in layout.columns
    stamps, prompts, outputs, lines = [], [], [], []
    for table in read_batches(content, layout.header):
        prompt = table.integers("num_prefill_tokens", low=0)
        output = table.integers("num_decode_tokens", low=0)
        if _TOTAL in layout.columns:
            total = table.integers(_TOTAL, low=0, high=2**32)
            wrong = np.flatnonzero(total != prompt + output)
            if len(wrong):
                row = int(wrong[0])
                right = f"{prompt[row]} + {output[row]}"
                raise table.error(row, f"{_TOTAL} is {total[row]}; must be {right}")
        if timed:
            stamps.append(table.seconds("arrived_at"))
        prompts.append(prompt)
        outputs.append(output)
        lines.append(table.line_numbers)
    prompt_tokens = _joined(prompts)
    return Rows(
        stamps=np.concatenate([np.zeros(0), *stamps]) if timed else np.zeros(len(prompt_tokens)),
        ticks_per_s=1,
        prompt_tokens=prompt_tokens,
        output_tokens=_joined(outputs),
        line_numbers=_joined(lines),
        has_arrivals=timed,
    )


def _joined(batches: list[IntArray]) -> IntArray:
    return np.concatenate([np.zeros(0, np.int64), *batches])


VIDUR = TraceFormat(
    name="vidur",
    about="traces and length files of Vidur",
    kinds=("CSV",),
    required=("num_prefill_tokens", "num_decode_tokens"),
    optional=("arrived_at", _TOTAL, "pd_ratio"),
    read=_read,
)
