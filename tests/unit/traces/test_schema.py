"""The trace itself: what it refuses, its transforms, its hash."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fleetsim.traces import Categorical, InputError, Trace, TraceMetadata


def make_trace(**changes: Any) -> Trace:
    columns: dict[str, Any] = {
        "arrival_s": np.array([0.0, 1.0, 1.0, 4.0]),
        "prompt_tokens": np.array([10, 20, 30, 40], dtype=np.int32),
        "output_tokens": np.array([1, 2, 3, 4], dtype=np.int32),
        "source_row": np.arange(4),
        "block_offsets": np.array([0, 1, 1, 3, 6]),
        "block_ids": np.array([1, 1, 2, 1, 2, 3], dtype=np.uint64),
        "session": Categorical.from_values(["b", None, "a", "b"]),
        "turn": np.array([0, -1, 0, 1], dtype=np.int32),
        "metadata": TraceMetadata("test", 4, 4, block_tokens=16, prefix_scope="global"),
    }
    return Trace(**{**columns, **changes})


def test_columns_are_read_only() -> None:
    trace = make_trace()
    with pytest.raises(ValueError, match="read-only"):
        trace.arrival_s[0] = 1.0
    assert trace.session is not None
    with pytest.raises(ValueError, match="read-only"):
        trace.session.codes[0] = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival_s": np.array([0.0, 2.0, 1.0, 4.0])}, "arrival_s must not decrease"),
        ({"arrival_s": np.array([1.0, 2.0, 3.0, 4.0])}, "the first arrival_s must be 0"),
        ({"arrival_s": np.array([0.0, 1.0, 2.0, np.nan])}, "arrival_s holds a NaN or infinity"),
        ({"prompt_tokens": np.array([1, 1, 0, 1], dtype=np.int32)}, "prompt_tokens must be at lea"),
        ({"output_tokens": np.array([1, 1, 0, 1], dtype=np.int32)}, "output_tokens must be at lea"),
        ({"output_tokens": np.arange(1, 5)}, "column output_tokens is int64, must be int32"),
        ({"turn": np.zeros(3, dtype=np.int32)}, r"column turn has \(3,\), not 4 rows"),
        ({"session": Categorical.from_values(["a"])}, "column session has 1 rows, not 4"),
        ({"block_ids": None}, "block_offsets and block_ids go together"),
        ({"block_offsets": np.array([0, 1, 1, 3, 5])}, "block_offsets must rise from 0 to the"),
        ({"metadata": TraceMetadata("test", 4, 4)}, "block ids need metadata.block_tokens"),
        ({"metadata": TraceMetadata("test", 5, 5)}, "rows_kept is not the number of requests"),
    ],
)
def test_wrong_columns_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_trace(**changes)


def test_rows_must_add_up() -> None:
    TraceMetadata("test", 10, 7, {"zero_output": 3})
    with pytest.raises(InputError, match=r"rows_read 10 must equal rows_kept 7 \+ rows_dropped 2"):
        TraceMetadata("test", 10, 7, {"zero_output": 2})


def test_time_scaled_compresses_time_and_says_so() -> None:
    trace = make_trace()
    fast = trace.time_scaled(4).time_scaled(0.5)
    assert fast.arrival_s.tolist() == [0.0, 0.5, 0.5, 2.0]
    assert [step["factor"] for step in fast.metadata.transforms] == [4, 0.5]
    assert fast.prompt_tokens is trace.prompt_tokens
    for factor in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="time_scale"):
            trace.time_scaled(factor)


def test_head_keeps_the_first_and_accounts_for_the_rest() -> None:
    head = make_trace().head(3)
    assert len(head) == 3
    assert head.block_offsets is not None
    assert head.block_ids is not None
    assert (head.block_offsets.tolist(), head.block_ids.tolist()) == ([0, 1, 1, 3], [1, 1, 2])
    assert head.session is not None
    assert [head.session[row] for row in range(3)] == ["b", None, "a"]
    assert (head.metadata.rows_read, head.metadata.rows_kept) == (4, 3)
    assert head.head(1).metadata.rows_dropped == {"head": 3}
    assert make_trace().head(9).metadata.transforms == ()
    with pytest.raises(InputError, match="head 0: must be at least 1"):
        head.head(0)


def test_categorical() -> None:
    labels = Categorical.from_values(["x", None, "y", "x"])
    assert (labels.codes.tolist(), labels.names) == ([0, -1, 1, 0], ("x", "y"))
    picked = labels.take(np.array([2, 1, 2]))
    assert (picked.codes.tolist(), picked.names) == ([0, -1, 0], ("y",))


def test_hash_sees_every_column_of_the_workload() -> None:
    trace = make_trace()
    hashes = {trace.content_hash()}
    for changes in (
        {"arrival_s": np.array([0.0, 1.0, 1.0, np.nextafter(4.0, 5.0)])},
        {"prompt_tokens": np.array([10, 20, 30, 41], dtype=np.int32)},
        {"output_tokens": np.array([1, 2, 3, 5], dtype=np.int32)},
        {"max_tokens": np.array([1, 2, 3, 4], dtype=np.int32)},
        {"block_ids": np.array([1, 1, 2, 1, 2, 4], dtype=np.uint64)},
        {"session": Categorical.from_values(["b", None, "a", "c"])},
        {"session": None, "tenant": trace.session},
        {"turn": None},
        {"priority": np.zeros(4, dtype=np.int16)},
        {"metadata": replace(trace.metadata, block_tokens=32)},
    ):
        hashes.add(make_trace(**changes).content_hash())
    assert len(hashes) == 11


def test_hash_does_not_see_where_the_rows_came_from() -> None:
    trace = make_trace()
    other = make_trace(
        source_row=np.array([9, 3, 5, 4]),
        session=Categorical(np.array([2, -1, 0, 2], dtype=np.int32), ("a", "unused", "b")),
        metadata=replace(trace.metadata, source_name="elsewhere", sha256="0" * 64),
    )
    assert other.content_hash() == trace.content_hash()
