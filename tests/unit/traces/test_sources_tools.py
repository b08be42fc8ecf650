"""What benchmark tools read and write: small files, and what may be wrong in them."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.traces.source_files import BLIS, chains, mooncake_like, refusal, write

from fleetsim.traces import load_trace


def test_the_keys_of_mooncake_with_16_token_blocks_are_ambiguous(tmp_path: Path) -> None:
    rows = [mooncake_like(1, 40, [1, 2, 3]), mooncake_like(3, 32, [2, 3])]
    path = write(tmp_path, rows)
    message = refusal(path)
    assert "fit aiperf, " in message
    assert "timed_trace, " in message
    assert "say which with format=" in message
    seconds = load_trace(path, format="timed_trace")
    assert seconds.arrival_s.tolist() == [0.0, 2.0]
    assert seconds.metadata.block_tokens == 16
    assert chains(seconds) == [[0, 1, 2], [3, 4]]  # a block's text comes of its id alone
    assert load_trace(path, format="aiperf").arrival_s.tolist() == [0.0, 0.002]
    assert "row 1: 3 hash_ids for input_length 40; must be 1 blocks of 512" in refusal(
        path, format="mooncake"
    )


def test_lengths_and_times_alone_may_be_seconds_or_milliseconds(tmp_path: Path) -> None:
    rows = [{"timestamp": t, "input_length": 9, "output_length": 5} for t in (0, 2.5)]
    path = write(tmp_path, rows)
    message = refusal(path)
    assert "fit aiperf" in message
    assert "guidellm" in message
    assert load_trace(path, format="guidellm").arrival_s.tolist() == [0.0, 2.5]
    assert load_trace(path, format="aiperf").arrival_s.tolist() == [0.0, 0.0025]


def test_512_token_blocks_are_mooncakes(tmp_path: Path) -> None:
    path = write(tmp_path, [mooncake_like(1000, 600, [1, 2])])
    assert load_trace(path).metadata.source_name == "mooncake"


def test_aiperf_delays_make_a_closed_loop(tmp_path: Path) -> None:
    rows = [
        mooncake_like(1000, 100, [1, 2], session_id="a"),
        {"timestamp": 1500, "input_length": 64, "output_length": 5},
        {"delay": 250, "input_length": 130, "output_length": 5, "session_id": "a"},
        {"delay": 50, "input_length": 140, "output_length": 5, "session_id": "a"},
    ]
    rows[2]["hash_ids"] = [1, 2, 3]
    trace = load_trace(write(tmp_path, rows))
    assert trace.metadata.source_name == "aiperf"
    assert trace.metadata.block_tokens == 64
    assert trace.arrival_s.tolist() == [0.0, 0.25, 0.3, 0.5]
    assert trace.parent is not None
    assert trace.think_s is not None
    assert trace.turn is not None
    assert trace.parent.tolist() == [-1, 0, 1, -1]
    assert trace.think_s.tolist()[1:3] == [0.25, 0.05]
    assert trace.turn.tolist() == [0, 1, 2, -1]
    assert chains(trace) == [[0, 1], [0, 1, 2], [], []]


def test_dynamo_names(tmp_path: Path) -> None:
    rows = [
        {"created_time": 5, "input_tokens": 64, "output_tokens": 5, "session_id": "a"},
        {"delay_ms": 40, "input_tokens": 65, "output_tokens": 6, "session_id": "a"},
    ]
    trace = load_trace(write(tmp_path, rows))
    assert trace.metadata.source_name == "dynamo"
    assert trace.think_s is not None
    assert trace.think_s[1] == 0.04


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"text_input": "Hello"}, "row 2: text_input is text; give input_length, its number of"),
        ({"timestamp": None}, "row 2: lacks timestamp; only a later row of a session may have"),
        ({"timestamp": None, "delay": 5}, "row 2: lacks timestamp; only a later row of a session"),
        ({"hash_ids": [1, 2, 3, 4, 5]}, "row 2: 5 hash_ids for input_length 64; must be 1 blocks"),
        ({"priority": 5}, "row 2: unknown key 'priority'; aiperf has only timestamp, delay,"),
    ],
)
def test_bad_aiperf(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    first = mooncake_like(0, 64, [1], session_id="a")
    rows = [first, mooncake_like(1, 64, [1], session_id="b") | change]
    assert expected in refusal(write(tmp_path, rows))


def test_bench_serve(tmp_path: Path) -> None:
    result = {
        "date": "20260101-000000",
        "max_concurrency": 8,
        "input_lens": [100, 200, 300],
        "output_lens": [5, 0, 7],
        "start_times": [50.5, 50.75, 51.5],
        "errors": ["", "timeout", ""],
    }
    for indent in (None, 2):
        trace = load_trace(write(tmp_path, json.dumps(result, indent=indent)))
        assert trace.arrival_s.tolist() == [0.0, 1.0]
        assert trace.prompt_tokens.tolist() == [100, 300]
        assert trace.metadata.rows_dropped == {"zero_output": 1}
        assert "at most 8 requests under way" in trace.metadata.warnings[0]
    del result["start_times"]
    path = write(tmp_path, json.dumps(result))
    assert "does not say when requests arrive" in refusal(path)
    assert load_trace(path, arrivals_s=[0, 1, 2]).arrival_s.tolist() == [0.0, 2.0]
    del result["output_lens"]
    assert "lacks output_lens, a list; run" in refusal(write(tmp_path, json.dumps(result)))
    result["output_lens"] = [1]
    counts = "has 3 input_lens, 1 output_lens, 3 start_times; must be as many of each"
    assert counts in refusal(write(tmp_path, json.dumps(result)))


def test_blis(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, BLIS))
    assert trace.arrival_s.tolist() == [0.0, 0.001, 0.002]
    assert trace.prompt_tokens.tolist() == [42, 72, 14]  # prefix + input, or the server's count
    assert chains(trace) == [[0, 1], [0, 1, 2, 3], []]
    assert trace.metadata.rows_dropped == {
        "zero_output": 1,
        "status_error": 1,
    }
    assert trace.priority is not None
    assert trace.priority.tolist() == [0, 5, 5]
    assert trace.tenant is not None
    assert trace.tenant.names == ("acme", "zeta")
    wrong = BLIS.replace("s,1,g,32", "s,1,g,16")
    assert "row 3: prefix_length is 16; must be 32 as in other rows" in refusal(
        write(tmp_path, wrong)
    )
    empty = BLIS.replace("2000,2000,ok", "2000,2000,")
    assert "row 3: status is empty" in refusal(write(tmp_path, empty))
