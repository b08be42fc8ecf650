"""BLIS TraceV2: the CSV of requests (its YAML header, a file beside it, is not needed).

Times are whole microseconds. Rows whose ``status`` is not ``ok`` were not served: they are dropped
as ``status_error``, ``status_timeout`` and so on. A prompt is ``prefix_length`` tokens that its
``prefix_group`` shares, and ``input_tokens`` after it; without a group it is what the server
counted (``server_input_tokens``) where it did. Prefixes are cut into 16-token blocks. Requests come
at ``arrival_time_us``; a session's rounds are numbered, and come at their own recorded time too.

``priority`` is ``vllm_priority``. Deadlines, SLO targets, kinds of tokens and what was measured are
left aside.

Format: sim/workload/tracev2.go and replay.go of https://github.com/inference-sim/inference-sim.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleetsim.traces.schema import Categorical, IntArray
from fleetsim.traces.sources.component_blocks import ComponentBlocks
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import read_batches
from fleetsim.traces.sources.record import Record
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Chains, Rows
from fleetsim.traces.sources.table import Table

BLOCK_TOKENS = 16
_US_PER_S = 1_000_000
_US_MAX = 2**62
_REQUIRED = ("request_id", "input_tokens", "output_tokens", "arrival_time_us", "status")
_OPTIONAL = (
    "client_id",
    "tenant_id",
    "slo_class",
    "vllm_priority",
    "session_id",
    "round_index",
    "prefix_group",
    "prefix_length",
    "streaming",
    "text_tokens",
    "image_tokens",
    "audio_tokens",
    "video_tokens",
    "reason_ratio",
    "model",
    "deadline_us",
    "slo_target_us",
    "server_input_tokens",
    "send_time_us",
    "first_chunk_time_us",
    "last_chunk_time_us",
    "num_chunks",
    "error_message",
    "finish_reason",
    "x_request_id",
    "adapter",
    "think_time_us",
)


def _read(content: Content, layout: Layout) -> Rows:
    assert layout.header is not None
    batches = list(read_batches(content, layout.header))
    columns = {
        name: pa.concat_arrays([table.columns[name] for table in batches] or [pa.array([], "str")])
        for name in layout.columns
    }
    lines = np.concatenate([np.zeros(0, np.int64), *(table.line_numbers for table in batches)])
    table = Table(content.path, columns, lines, is_text=True)

    def whole(name: str, high: int = 2**31 - 1) -> IntArray:
        absent = name not in columns
        zeros = np.zeros(len(lines), np.int64)
        return zeros if absent else table.integers(name, low=0, high=high, null=0)

    groups = table.labels("prefix_group").codes if "prefix_group" in columns else None
    shared = np.zeros(len(lines), np.int64)
    if groups is not None:
        shared = np.where(groups >= 0, whole("prefix_length"), 0)
    own, counted = whole("input_tokens"), whole("server_input_tokens")
    grouped = np.zeros(len(lines), bool) if groups is None else groups >= 0
    prompts = np.where((counted > 0) & ~grouped, counted, own + shared)
    status = table.labels("status")
    excluded = {
        f"status_{name}": status.codes == code
        for code, name in enumerate(status.names)
        if name != "ok"
    }
    if (status.codes < 0).any():
        row = int(np.argmax(status.codes < 0))
        raise table.error(row, "status is empty; must be ok, error or timeout")

    def labels(name: str) -> Categorical | None:
        if name not in columns:
            return None
        column = table.labels(name)
        return column if (column.codes >= 0).any() else None

    session = labels("session_id")
    return Rows(
        stamps=table.integers("arrival_time_us", low=0, high=_US_MAX),
        ticks_per_s=_US_PER_S,
        prompt_tokens=prompts,
        output_tokens=whole("output_tokens"),
        line_numbers=lines,
        chains=_chains(content, groups, shared, prompts, lines),
        priority=table.integers("vllm_priority", low=0, high=2**15 - 1, null=0)
        if "vllm_priority" in columns
        else None,
        turn=whole("round_index") if session is not None else None,
        session=session,
        tenant=labels("tenant_id"),
        slo_class=labels("slo_class"),
        model=labels("model"),
        adapter=labels("adapter"),
        excluded=excluded,
    )


def _chains(
    content: Content,
    groups: npt.NDArray[np.int32] | None,
    shared: IntArray,
    prompts: IntArray,
    lines: IntArray,
) -> Chains | None:
    if groups is None or not shared.any():
        return None
    blocks = ComponentBlocks(BLOCK_TOKENS)
    lengths: dict[int, int] = {}
    for group, length, prompt, line in zip(groups, shared, prompts, lines, strict=True):
        record = Record(content, int(line), {})
        if length and lengths.setdefault(int(group), int(length)) != length:
            raise record.error(
                f"prefix_length is {length}; must be {lengths[int(group)]} as in other rows of "
                "its prefix_group"
            )
        prefix = [(int(group), int(length))] if length else []
        blocks.add(record, int(prompt), prefix)
    return blocks.chains()


BLIS = TraceFormat(
    name="blis",
    about="BLIS TraceV2, its CSV of requests",
    kinds=("CSV",),
    required=_REQUIRED,
    optional=_OPTIONAL,
    read=_read,
)
