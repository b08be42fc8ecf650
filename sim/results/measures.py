"""What one journey felt like, in numbers: computed from the columns of the requests table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Columns = Mapping[str, Array]

SLO_METRICS = ("client_ttft_s", "gateway_ttft_s", "engine_ttft_s", "tpot_s", "e2e_s")
"""Measures that an SLO may bound; each has one value a request."""
MEASURES = (*SLO_METRICS, "queue_s")
PHASES = (
    "network_in_s",
    "gateway_s",
    "api_s",
    "queue_s",
    "prefill_s",
    "decode_s",
    "stall_s",
    "network_out_s",
)
MEASURE_COLUMNS = (
    "client_sent_s",
    "arrived_s",
    "dispatched_s",
    "queued_s",
    "scheduled_s",
    "first_token_s",
    "last_token_s",
    "client_first_token_s",
    "ended_s",
    "prefill_stall_s",
    "decode_stall_s",
    "delivered_tokens",
)
"""Columns that `measures` and `phases` read."""


def measures(columns: Columns) -> dict[str, Floats]:
    """Each of `MEASURES` for every row, in seconds; NaN where a journey never got so far.

    TPOT is NaN for a single token. The values of a journey that did not complete are what they
    are; whoever reports them chooses the rows.
    """
    first_s = _floats(columns, "first_token_s")
    gaps = _floats(columns, "delivered_tokens") - 1.0
    gaps[gaps < 1.0] = np.nan
    return {
        "client_ttft_s": _floats(columns, "client_first_token_s")
        - _floats(columns, "client_sent_s"),
        "gateway_ttft_s": first_s - _floats(columns, "arrived_s"),
        "engine_ttft_s": first_s - _floats(columns, "dispatched_s"),
        "tpot_s": (_floats(columns, "last_token_s") - first_s) / gaps,
        "e2e_s": _floats(columns, "ended_s") - _floats(columns, "client_sent_s"),
        "queue_s": _floats(columns, "scheduled_s") - _floats(columns, "queued_s"),
    }


def phases(columns: Columns) -> dict[str, Floats]:
    """Each of `PHASES` for every row, in seconds. For a completed journey they sum to its e2e_s."""
    first_s, last_s = _floats(columns, "first_token_s"), _floats(columns, "last_token_s")
    prefill_stall_s = _floats(columns, "prefill_stall_s")
    decode_stall_s = _floats(columns, "decode_stall_s")
    arrived_s, dispatched_s = _floats(columns, "arrived_s"), _floats(columns, "dispatched_s")
    queued_s, scheduled_s = _floats(columns, "queued_s"), _floats(columns, "scheduled_s")
    return {
        "network_in_s": arrived_s - _floats(columns, "client_sent_s"),
        "gateway_s": dispatched_s - arrived_s,
        "api_s": queued_s - dispatched_s,
        "queue_s": scheduled_s - queued_s,
        "prefill_s": first_s - scheduled_s - prefill_stall_s,
        "decode_s": last_s - first_s - decode_stall_s,
        "stall_s": prefill_stall_s + decode_stall_s,
        "network_out_s": _floats(columns, "ended_s") - last_s,
    }


def _floats(columns: Columns, name: str) -> Floats:
    return columns[name].astype(np.float64)
