"""Whose answer a row waits for: in files, and in the trace made of them."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleetsim.traces import InputError, Trace, load_trace

HEADER = "arrival_s,prompt_tokens,output_tokens,session,turn,think_s,parent_turn,kind\n"


def read(tmp_path: Path, rows: str) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + rows)
    return load_trace(path)


def test_a_turn_waits_for_the_one_before_or_the_stated_one(tmp_path: Path) -> None:
    # out of order in the file, so that rows are renumbered
    rows = "5,10,1,a,1,2.5,,chat\n0,10,1,a,0,,,chat\n1,10,1,b,0,,,\n9,1,1,a,2,0,0,agent\n"
    trace = read(tmp_path, rows)
    assert trace.parent is not None
    assert trace.think_s is not None
    assert trace.kind is not None
    assert trace.parent.tolist() == [-1, -1, 0, 0]
    np.testing.assert_array_equal(trace.think_s, [np.nan, np.nan, 2.5, 0.0])
    assert [trace.kind[row] for row in range(4)] == ["chat", None, "chat", "agent"]


def test_a_parent_without_think_time(tmp_path: Path) -> None:
    trace = read(tmp_path, "0,10,1,a,0,,,\n4,10,1,a,1,,0,\n5,10,1,a,2,,,\n")
    assert trace.parent is not None
    assert trace.think_s is None
    assert trace.parent.tolist() == [-1, 0, -1]


def test_turns_alone_link_nothing(tmp_path: Path) -> None:
    trace = read(tmp_path, "0,10,1,a,0,,,\n4,10,1,a,1,,,\n4,10,1,a,1,,,\n")
    assert trace.parent is None
    assert trace.think_s is None


def test_jsonl(tmp_path: Path) -> None:
    head = {"arrival_s": 0, "prompt_tokens": 3, "output_tokens": 1, "session": "x", "turn": 0}
    next_turn = head | {"arrival_s": 1, "turn": 1, "think_s": 0.5, "kind": "chat"}
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, (head, next_turn))))
    trace = load_trace(path)
    assert trace.parent is not None
    assert trace.think_s is not None
    assert trace.kind is not None
    assert (trace.parent[1], trace.think_s[1], trace.kind[1]) == (0, 0.5, "chat")


def test_to_parquet_and_back(tmp_path: Path) -> None:
    rows = "0,10,1,a,0,,,chat\n1,10,1,b,0,,,\n5,10,1,a,1,2.5,,chat\n9,1,1,a,2,,0,agent\n"
    trace = read(tmp_path, rows)
    trace.to_parquet(tmp_path / "trace.parquet")
    back = load_trace(tmp_path / "trace.parquet")
    assert back.content_hash() == trace.content_hash()
    assert back.parent is not None
    assert back.parent.tolist() == [-1, -1, 0, 0]
    assert back.metadata == trace.metadata


def test_whoever_waits_for_a_dropped_row_is_dropped_too(tmp_path: Path) -> None:
    rows = (
        "0,10,1,a,0,,,\n"
        "1,10,0,a,1,1,,\n"  # failed where it was recorded
        "2,10,1,a,2,1,,\n"
        "3,10,1,a,3,1,,\n"  # waits for one that waits for it
        "4,10,1,a,4,,1,\n"  # comes at its own time
        "5,10,1,a,5,1,,\n"
        "6,10,0,a,6,1,2,\n"  # has both reasons, and counts once
    )
    trace = read(tmp_path, rows)
    assert trace.metadata.rows_dropped == {"zero_output": 2, "parent_dropped": 2}
    assert trace.source_row.tolist() == [0, 4, 5]
    assert trace.parent is not None
    assert trace.parent.tolist() == [-1, -1, 1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "0,10,1,a,0,,,\n1,10,1,a,2,1,,\n",
            "row 3: turn 2 of session 'a' waits for turn 1, which is not there",
        ),
        ("0,10,1,a,0,,,\n1,10,1,a,1,,7,\n", "row 3: turn 1 of session 'a' waits for turn 7"),
        (
            "0,10,1,a,0,,,\n1,10,1,a,1,1,,\n2,10,1,a,1,,,\n",
            "row 4: turn 1 of session 'a' is in row 3 too",
        ),
        ("3,10,1,a,0,,,\n1,10,1,a,1,1,,\n", "row 3: waits for the answer to row 2, which comes"),
        ("1,10,1,a,1,1,,\n1,10,1,a,0,,,\n", "row 2: waits for the answer to row 3, which comes"),
        ("1,10,1,a,3,1,3,\n", "row 2: waits for the answer to row 2"),
        ("0,10,1,a,0,,,\n3,10,1,,1,1,,\n", "row 3: think_s needs session and turn"),
        ("0,10,1,a,0,,,\n3,10,1,a,,,0,\n", "row 3: parent_turn needs session and turn"),
        ("0,10,1,a,0,1,,\n", "row 2: think_s at turn 0"),
        ("0,10,1,a,0,,,\n1,10,1,a,1,-1,,\n", "row 3: think_s is -1; must be seconds"),
        ("0,10,1,a,0,,,\n1,10,1,a,1,inf,,\n", "row 3: think_s is inf; must be seconds"),
        ("0,10,1,a,0,,,\n1,10,1,a,1,soon,,\n", "row 3: think_s is 'soon'; must be seconds"),
    ],
)
def test_what_cannot_be_right_is_named(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, rows)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parent", "think_s", "message"),
    [
        ([None, None], [None, 1.0], "row 2: think_s needs a parent"),
        ([None, 2], [None, 1.0], "row 2: parent is 2; must be a whole number of at most 1"),
        ([1, None], [None, None], "row 1: waits for the answer to row 2"),
        ([None, 1], [None, 1.0], "row 2: waits for the answer to row 2"),
    ],
)
def test_wrong_rows_in_parquet(
    tmp_path: Path, parent: list[int | None], think_s: list[float | None], message: str
) -> None:
    columns = {
        "arrival_s": pa.array([0.0, 1.0]),
        "prompt_tokens": pa.array([5, 5]),
        "output_tokens": pa.array([5, 5]),
        "parent": pa.array(parent, pa.int64()),
        "think_s": pa.array(think_s, pa.float64()),
    }
    pq.write_table(pa.table(columns), tmp_path / "trace.parquet")
    with pytest.raises(InputError) as caught:
        load_trace(tmp_path / "trace.parquet")
    assert message in str(caught.value)


def test_a_row_number_is_for_parquet_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,parent,think_s\n0,1,1,,\n2,1,1,0,1\n")
    with pytest.raises(InputError, match=r"parent \(a row\) is for Parquet alone"):
        load_trace(path)
