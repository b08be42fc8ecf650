"""Rows picked from a trace are a trace: parents, block chains and accounts follow."""

import numpy as np
import pytest

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Categorical, Trace, TraceMetadata


def trace(**columns):
    n = 5
    return Trace(
        arrival_s=np.array([0.0, 1.0, 2.0, 3.0, 4.0]),
        prompt_tokens=np.arange(1, n + 1, dtype=np.int32),
        output_tokens=np.ones(n, np.int32),
        source_row=np.arange(n),
        metadata=TraceMetadata("test", rows_read=n, rows_kept=n, block_tokens=1),
        block_offsets=np.array([0, 1, 3, 3, 4, 6]),
        block_ids=np.array([1, 1, 2, 1, 7, 8], np.uint64),
        parent=np.array([-1, 0, -1, 1, 2]),
        think_s=np.array([np.nan, 5.0, np.nan, 6.0, np.nan]),
        kind=Categorical.from_values(["a", "b", None, "c", "b"]),
        **columns,
    )


def test_columns_parents_and_chains_follow():
    taken = trace().take(np.array([1, 3, 4]), "thin")
    assert taken.arrival_s.tolist() == [0.0, 2.0, 3.0]
    assert taken.parent.tolist() == [-1, 0, -1]
    assert np.array_equal(taken.think_s, [np.nan, 6.0, np.nan], equal_nan=True)
    assert taken.block_offsets.tolist() == [0, 2, 3, 5]
    assert taken.block_ids.tolist() == [1, 2, 1, 7, 8]
    assert [taken.kind[i] for i in range(3)] == ["b", "c", "b"]
    assert (taken.metadata.rows_read, taken.metadata.rows_dropped) == (5, {"thin": 2})


def test_all_rows_are_the_same_trace():
    whole = trace()
    assert whole.take(np.arange(5)).content_hash() == whole.content_hash()


def test_parents_and_thinking_are_part_of_the_content():
    whole = trace()
    changed = [
        ("parent", np.array([-1, 0, -1, 0, 2])),
        ("think_s", np.array([np.nan, 5.0, np.nan, 6.5, np.nan])),
    ]
    for name, value in changed:
        other = Trace(**{**{f: getattr(whole, f) for f in whole.__dataclass_fields__}, name: value})
        assert other.content_hash() != whole.content_hash(), name


@pytest.mark.parametrize("rows", [[], [1, 1], [2, 1]])
def test_rows_must_rise(rows):
    with pytest.raises(InputError, match="must rise"):
        trace().take(np.array(rows, dtype=np.int64))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"parent": np.array([0, -1, -1, -1, -1])}, "a parent must be an earlier row"),
        ({"parent": np.array([-1, -2, -1, -1, -1])}, "a parent must be an earlier row"),
        ({"parent": None}, "think_s needs a parent column"),
        ({"think_s": np.array([np.nan, -1.0, np.nan, np.nan, np.nan])}, "think_s must be at least"),
        ({"think_s": np.array([1.0, 1.0, 1.0, 1.0, 1.0])}, "think_s needs a parent in its row"),
        ({"think_s": np.array([np.nan, np.inf, np.nan, np.nan, np.nan])}, "holds an infinity"),
    ],
)
def test_a_closed_loop_turn_has_an_earlier_parent(columns, says):
    whole = trace()
    values = {f: getattr(whole, f) for f in whole.__dataclass_fields__}
    with pytest.raises(InputError, match=says):
        Trace(**{**values, **columns})
