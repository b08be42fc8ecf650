"""BurstGPT: CSV of a university's ChatGPT and GPT-4 traffic, in whole seconds.

Files 1 and 2 have ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``; file 3
puts ``Session ID,Elapsed time`` after the first column, so columns are read by name. Seconds count
from the midnight before file 1 begins. A response of 0 tokens is a failed request. Session ID is
blank for requests of the API; the turns of a session are numbered by their arrival. Nothing is
said about shared prefixes, nor which answer a turn waited for.

``Elapsed time`` is what the request took where it was recorded; no such column is kept.

Source: https://github.com/HPMLL/BurstGPT, release 2.0 (CC-BY-4.0).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from fleetsim.traces.schema import Categorical, IntArray
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import read_batches
from fleetsim.traces.sources.record import exact_stamps
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows
from fleetsim.traces.sources.table import Table

REQUIRED = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
OPTIONAL = ("Session ID", "Elapsed time")


def _read(content: Content, layout: Layout) -> Rows:
    assert layout.header is not None
    stamps, prompts, outputs, totals, lines = [], [], [], [], []
    labels: dict[str, list[pa.Array]] = {"Model": [], "Log Type": [], "Session ID": []}
    for table in read_batches(content, layout.header):
        stamps.append(table.seconds("Timestamp"))
        prompts.append(table.integers("Request tokens", low=0))
        outputs.append(table.integers("Response tokens", low=0))
        totals.append(table.integers("Total tokens", low=0, high=2**32))
        lines.append(table.line_numbers)
        for name, pieces in labels.items():
            if name in table.columns:
                pieces.append(table.columns[name].dictionary_encode())
    prompt_tokens, output_tokens = _joined(prompts), _joined(outputs)
    wrong = int((_joined(totals) != prompt_tokens + output_tokens).sum())
    rows = Rows(
        stamps=exact_stamps(np.concatenate([np.zeros(0), *stamps])),
        ticks_per_s=1,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        line_numbers=_joined(lines),
        model=_labels(content, labels, "Model"),
        kind=_labels(content, labels, "Log Type"),
        session=_labels(content, labels, "Session ID"),
        warnings=(f"{wrong} rows: Total tokens is not the sum of the two; left aside",)
        if wrong
        else (),
    )
    return dataclasses.replace(rows, turn=number_turns(rows.session, rows))


def _joined(batches: Iterable[IntArray]) -> IntArray:
    return np.concatenate([np.zeros(0, np.int64), *batches])


def _labels(
    content: Content, labels: Mapping[str, list[pa.Array]], name: str
) -> Categorical | None:
    if not labels[name]:
        return None
    column = pa.chunked_array(labels[name]).unify_dictionaries().combine_chunks()
    table = Table(content.path, {name: column}, np.zeros(0, np.int64), is_text=True)
    encoded = table.labels(name)
    return encoded if (encoded.codes >= 0).any() else None


def number_turns(session: Categorical | None, rows: Rows) -> IntArray | None:
    """Number the requests of each session by arrival, equal ones in the order of the file.

    Rows that were not served count too. -1 without a session.
    """
    if session is None:
        return None
    placed = np.flatnonzero(session.codes >= 0)
    order = placed[np.lexsort((placed, rows.stamps[placed], session.codes[placed]))]
    codes = session.codes[order]
    begins = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    lengths = np.diff(np.r_[begins, len(order)])
    turn = np.full(len(rows), -1, np.int64)
    turn[order] = np.arange(len(order)) - np.repeat(begins, lengths)
    return turn


BURSTGPT = TraceFormat(
    name="burstgpt",
    about="BurstGPT, files 1 to 3",
    kinds=("CSV",),
    required=REQUIRED,
    optional=OPTIONAL,
    read=_read,
)
