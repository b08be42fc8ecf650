"""Published traces of agents' sessions: small files, and what may be wrong in them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.traces.source_files import agent_round, call, chains, refusal, session, write

from fleetsim.traces import load_trace


def test_weka_think_times(tmp_path: Path) -> None:
    one = session(
        "one",
        call(0, 100, [1], api_time=2.5),
        call(10, 200, [1, 2, 3], api_time=4.0, think_time=7.0),  # stated
        call(20, 200, [1, 2, 3]),  # the gap less the server's time: 20 - 14
        call(30, 260, [1, 2, 3, 4, 5]),  # nothing stated: the whole gap
    )
    two = session("two", call(0, 64, [1]), call(5, 70, [1], out=0), call(9, 80, [1]))
    trace = load_trace(write(tmp_path, [one, two]))
    assert trace.session is not None
    assert trace.think_s is not None
    assert trace.parent is not None
    assert trace.turn is not None
    rows = [row for row in range(len(trace)) if trace.session[row] == "one"]
    assert trace.think_s[rows].tolist()[1:] == [7.0, 6.0, 10.0]
    assert trace.parent[rows].tolist() == [-1, *rows[:-1]]
    # the failed request is left out, and the next one waits for the answer before it
    rows = [row for row in range(len(trace)) if trace.session[row] == "two"]
    assert trace.metadata.rows_dropped == {"zero_output": 1}
    assert trace.think_s[rows].tolist()[1:] == [9.0]
    assert trace.parent[rows].tolist() == [-1, rows[0]]
    assert trace.turn[rows].tolist() == [0, 2]
    assert "2 think times hold the server's time too" in trace.metadata.warnings[1]
    # turns of a closed loop are not "out of order" where a second session begins
    assert not any("arrived before" in warning for warning in trace.metadata.warnings)
    # ids are local: block 1 of one session is not block 1 of the other
    assert len({tuple(chain[:1]) for chain in chains(trace)}) == 2


def test_weka_one_session_as_a_file(tmp_path: Path) -> None:
    one = session("one", call(0, 100, [1], api_time=2.5), call(10, 200, [1, 2, 3]))
    for indent in (None, 2):
        trace = load_trace(write(tmp_path, json.dumps(one, indent=indent)))
        assert trace.metadata.source_name == "weka"
        assert trace.metadata.warnings == ()
        assert chains(trace) == [[0], [0, 1, 2]]


def test_weka_session_longer_than_the_head_of_the_file(tmp_path: Path) -> None:
    ids = list(range(60_000))
    path = write(tmp_path, [session("one", call(0, 64 * 60_000, ids))])
    assert path.stat().st_size > 1 << 18
    trace = load_trace(path)
    assert trace.block_ids is not None
    assert len(np.unique(trace.block_ids)) == 60_000


def test_weka_session_goes_on_when_the_last_subagent_has_ended(tmp_path: Path) -> None:
    def subagent(end_s: float, duration_s: float, *requests: dict[str, Any]) -> dict[str, Any]:
        fixed = {"t": end_s, "type": "subagent", "duration_ms": duration_s * 1000}
        return fixed | {"requests": list(requests)}

    one = session(
        "one",
        call(0, 64, [1], api_time=1.0),
        subagent(21, 20, call(0, 64, [5], api_time=3.0), call(12, 64, [5], api_time=4.0)),
        subagent(11, 10, call(0, 64, [6], api_time=9.0)),
        call(30, 64, [1], think_time=29.0),
    )
    trace = load_trace(write(tmp_path, [one]))
    assert trace.kind is not None
    assert trace.parent is not None
    assert trace.think_s is not None
    kinds = [trace.kind[row] for row in range(5)]
    assert kinds == ["agent", "subagent", "subagent", "subagent", "agent"]
    assert trace.arrival_s.tolist() == [0, 1, 1, 13, 30]
    assert trace.parent.tolist() == [-1, 0, 0, 1, 3]
    assert trace.think_s.tolist()[1:] == [0, 0, 9, 13]  # 30 - (13 + 4): not 29, since the first


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hash_id_scope": "global"}, "row 1: hash_id_scope is 'global'; must be 'local'"),
        ({"block_size": 0}, "row 1: block_size is 0; must be a whole number of at least 1"),
        ({"requests": [5]}, "row 1: requests must be a list of objects"),
        (
            {"requests": [call(0, 64, [1]), call(1, 200, [1])]},
            "row 1: requests[1]: 1 hash_ids for in 200; must be 4 blocks of 64 tokens (or 3",
        ),
        ({"requests": [call(0, 64, [1], out=-1)]}, "row 1: requests[0]: out is -1; must be a wh"),
        (
            {"requests": [{"t": 9, "type": "subagent", "duration_ms": 5, "requests": [{"t": 0}]}]},
            "row 1: requests[0].requests[0]: lacks in",
        ),
        ({"requests": []}, "has no rows; a trace needs at least one"),
    ],
)
def test_bad_weka(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    assert expected in refusal(write(tmp_path, [session("one", call(0, 64, [1])) | change]))


def test_weka_session_twice(tmp_path: Path) -> None:
    one = session("one", call(0, 64, [1]))
    assert "row 2: session 'one' is in row 1 too" in refusal(write(tmp_path, [one, one]))
    other = session("two", call(0, 64, [1, 2]), block_size=32)
    assert "row 2: block_size is 32; must be 64" in refusal(write(tmp_path, [one, other]))


def test_tracelab(tmp_path: Path) -> None:
    rows = [
        agent_round("a", "20.151Z", "30.151Z"),
        agent_round("b", "10.151Z", "30Z"),
        agent_round("a", "40.651Z", "45Z", prefix_tokens=None),
        agent_round("a", "32Z", "33Z", output_tokens=0),  # failed: the next waits for the first
        agent_round("b", "29Z", "31Z"),  # before the one before had ended
        agent_round("b", "1Z", "1Z", timing_events=[]),
    ]
    trace = load_trace(write(tmp_path, rows))
    assert trace.metadata.t0_iso == "2026-06-01T05:40:10.151000+00:00"
    assert trace.arrival_s.tolist() == [0.0, 10.0, 18.849, 30.5]
    assert trace.parent is not None
    assert trace.think_s is not None
    assert trace.turn is not None
    assert trace.parent.tolist() == [-1, -1, 0, 1]
    assert trace.think_s.tolist()[2:] == [0.0, 10.5]
    assert trace.turn.tolist() == [0, 0, 1, 2]
    assert trace.metadata.rows_dropped == {"zero_output": 1, "no_time": 1}
    assert "the provider read 75.0% of input tokens from its cache" in trace.metadata.warnings[0]
    assert "1 rounds began before the one before had ended" in trace.metadata.warnings[1]
    assert trace.block_ids is None
    noon = agent_round("a", "noon", "1Z")
    assert "row 1: timing_events: timestamp is '2026-06-01T05:40:noon'; must be" in refusal(
        write(tmp_path, [noon])
    )
    assert "row 1: lacks session_id" in refusal(write(tmp_path, [agent_round("", "1Z", "2Z")]))


def test_llmservingsim_mixes_requests_and_sessions(tmp_path: Path) -> None:
    rows = [
        {"input_toks": 20, "output_toks": 5, "arrival_time_ns": 2_000_000_000},
        {
            "session_id": "s",
            "arrival_time_ns": 1_000_000_000,
            "sub_requests": [
                {
                    "input_toks": 33,
                    "output_toks": 2,
                    "tool_duration_ns": 1_500_000_000,
                    "input_tok_ids": list(range(33)),
                },
                {
                    "input_toks": 34,
                    "output_toks": 3,
                    "input_tok_ids": [*range(16), 99, *range(17, 34)],
                },
            ],
        },
    ]
    trace = load_trace(write(tmp_path, rows))
    assert trace.arrival_s.tolist() == [0.0, 1.0, 1.5]
    assert trace.output_tokens.tolist() == [2, 5, 3]
    assert trace.parent is not None
    assert trace.think_s is not None
    assert trace.turn is not None
    assert trace.parent.tolist() == [-1, -1, 0]
    assert trace.think_s[2] == 1.5
    assert np.isnan(trace.think_s[:2]).all()
    assert trace.turn.tolist() == [0, -1, 1]
    assert chains(trace) == [[0, 1], [], [0, 2]]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"input_toks": 3, "output_toks": 1, "arrival_time_ns": 0, "input_tok_ids": [1, 2]},
            "row 1: 2 input_tok_ids for input_toks 3",
        ),
        (
            {"session_id": "s", "arrival_time_ns": 0, "sub_requests": []},
            "row 1: sub_requests is empty; a session needs at least one request",
        ),
        (
            {"session_id": "s", "arrival_time_ns": 0, "sub_requests": [{"input_toks": 5}]},
            "row 1: sub_requests[0]: lacks output_toks",
        ),
        (
            {"input_toks": 3, "output_toks": 1, "arrival_time_ns": -4},
            "row 1: arrival_time_ns is -4; must be a whole number of at least 0",
        ),
    ],
)
def test_bad_llmservingsim(tmp_path: Path, row: dict[str, Any], expected: str) -> None:
    assert expected in refusal(write(tmp_path, [row]))
