"""Traces of splitwise-sim: CSV of single requests, arrivals in seconds.

``request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size``.
``application_id`` becomes the tenant. Only requests of one prompt (``batch_size`` 1) to a language
model (``request_type`` 2) can be read. Nothing is said about shared prefixes.

Source: generate_trace.py of https://github.com/Mutinifni/splitwise-sim.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import read_batches
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows
from fleetsim.traces.sources.table import Table

_REQUIRED = (
    "request_id",
    "request_type",
    "application_id",
    "arrival_timestamp",
    "batch_size",
    "prompt_size",
    "token_size",
)
_ONLY = {"request_type": (2, "inference of a language model"), "batch_size": (1, "one prompt")}


def _read(content: Content, layout: Layout) -> Rows:
    assert layout.header is not None
    batches = list(read_batches(content, layout.header))
    columns = {
        name: pa.concat_arrays([table.columns[name] for table in batches] or [pa.array([], "str")])
        for name in _REQUIRED
    }
    lines = np.concatenate([np.zeros(0, np.int64), *(table.line_numbers for table in batches)])
    table = Table(content.path, columns, lines, is_text=True)
    for name, (right, meaning) in _ONLY.items():
        wrong = np.flatnonzero(table.integers(name, low=0) != right)
        if len(wrong):
            row = int(wrong[0])
            value = columns[name][row].as_py()
            raise table.error(row, f"{name} is {value}; must be {right}, {meaning}")
    return Rows(
        stamps=table.seconds("arrival_timestamp"),
        ticks_per_s=1,
        prompt_tokens=table.integers("prompt_size", low=0),
        output_tokens=table.integers("token_size", low=0),
        line_numbers=lines,
        tenant=table.labels("application_id"),
    )


SPLITWISE = TraceFormat(
    name="splitwise",
    about="traces of splitwise-sim",
    kinds=("CSV",),
    required=_REQUIRED,
    optional=(),
    read=_read,
)
