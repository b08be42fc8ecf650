"""The tables of a result: their columns, in order, and where a journey keeps each of them."""

from __future__ import annotations

import pyarrow as pa

RESULT_SCHEMA_VERSION = 1

FROM_REQUEST: tuple[tuple[str, pa.DataType], ...] = (
    ("request_id", pa.int64()),
    ("source_row", pa.int64()),
    ("tenant", pa.string()),
    ("model", pa.string()),
    ("session", pa.string()),
    ("slo_class", pa.string()),
    ("priority", pa.int32()),
    ("arrival_s", pa.float64()),
    ("prompt_tokens", pa.int32()),
    ("max_tokens", pa.int32()),
)
FROM_JOURNEY: tuple[tuple[str, pa.DataType], ...] = (
    ("output_tokens", pa.int32()),
    ("stops_at_length", pa.bool_()),
    ("outcome", pa.string()),
    ("reason", pa.string()),
    ("finish_reason", pa.string()),
    ("pool", pa.string()),
    ("replica", pa.int32()),
    ("attempts", pa.int32()),
    ("delivered_tokens", pa.int32()),
    ("cached_tokens", pa.int32()),
    ("preemptions", pa.int32()),
    ("client_sent_s", pa.float64()),
    ("arrived_s", pa.float64()),
    ("admitted_s", pa.float64()),
    ("dispatched_s", pa.float64()),
    ("queued_s", pa.float64()),
    ("scheduled_s", pa.float64()),
    ("first_token_s", pa.float64()),
    ("last_token_s", pa.float64()),
    ("client_first_token_s", pa.float64()),
    ("ended_s", pa.float64()),
    ("prefill_stall_s", pa.float64()),
    ("decode_stall_s", pa.float64()),
)

REQUESTS = pa.schema((*FROM_REQUEST, *FROM_JOURNEY))
TIMELINE = pa.schema(
    [
        ("t_s", pa.float64()),
        ("pool", pa.string()),
        ("replica", pa.int32()),
        ("running", pa.int32()),
        ("waiting", pa.int32()),
        ("kv_usage", pa.float64()),
        ("ready_replicas", pa.int32()),
    ]
)
SCALING = pa.schema(
    [
        ("t_s", pa.float64()),
        ("pool", pa.string()),
        ("replica", pa.int32()),
        ("from_state", pa.string()),
        ("to_state", pa.string()),
        ("reason", pa.string()),
    ]
)
DECISIONS = pa.schema(
    [
        ("t_s", pa.float64()),
        ("request_id", pa.int64()),
        ("attempt", pa.int32()),
        ("pool", pa.string()),
        ("replica", pa.int32()),
        ("reason", pa.string()),
        ("scores", pa.list_(pa.float64())),
    ]
)
REPLICAS = pa.schema(
    [
        ("pool", pa.string()),
        ("replica", pa.int32()),
        ("gpus", pa.int32()),
        ("requested_s", pa.float64()),
        ("ready_s", pa.float64()),
        ("stopped_s", pa.float64()),
        ("usd_per_gpu_hour", pa.float64()),
        ("max_num_seqs", pa.int32()),
        ("max_num_batched_tokens", pa.int32()),
        ("num_gpu_blocks", pa.int64()),
        ("steps", pa.int64()),
        ("scheduled_tokens", pa.int64()),
        ("busy_s", pa.float64()),
        ("kv_usage_integral_s", pa.float64()),
        ("kv_usage_max", pa.float64()),
    ]
)
USAGE = pa.schema(
    [
        ("tenant", pa.string()),
        ("requests", pa.int64()),
        ("rejected", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
    ]
)
ITL_HISTOGRAM = pa.schema(
    [
        ("pool", pa.string()),
        ("lower_s", pa.float64()),
        ("upper_s", pa.float64()),
        ("count", pa.int64()),
    ]
)

TABLES: dict[str, pa.Schema] = {
    "requests": REQUESTS,
    "timeline": TIMELINE,
    "replicas": REPLICAS,
    "scaling": SCALING,
    "usage": USAGE,
    "itl_histogram": ITL_HISTOGRAM,
    "decisions": DECISIONS,
}
"""Every table that a result may hold. `requests`, `timeline` and `decisions` come in parts."""
