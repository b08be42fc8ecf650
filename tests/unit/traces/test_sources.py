"""Small files of formats whose published traces are not at hand, and what may be wrong in them."""

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traces import InputError, Trace, load_trace


def write(tmp_path: Path, content: str | bytes | list[dict[str, Any]], name: str = "t") -> Path:
    if isinstance(content, list):
        content = "\n".join(map(json.dumps, content)) + "\n"
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_trace(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def chains(trace: Trace) -> list[list[int]]:
    """Block ids of each request, numbered by first appearance."""
    assert trace.block_ids is not None
    assert trace.block_offsets is not None
    numbers: dict[int, int] = {}
    ids = [numbers.setdefault(int(block), len(numbers)) for block in trace.block_ids]
    ends = trace.block_offsets.tolist()
    return [ids[a:b] for a, b in itertools.pairwise(ends)]


# azure


def test_azure_multimodal(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
        "2024-10-15T12:00:00.125Z,0,100,5\n"
        "2024-10-15T12:00:01Z,3,2000,6\n"
    )
    trace = load_trace(write(tmp_path, gzip.compress(text.encode())))
    assert trace.arrival_s.tolist() == [0.0, 0.875]
    assert trace.metadata.t0_iso == "2024-10-15T12:00:00.125000+00:00"
    assert trace.kind is not None
    assert [trace.kind[0], trace.kind[1]] == ["text", "image"]
    assert "1 of 2 requests hold images, which are not simulated" in trace.metadata.warnings[0]
    bad = text.replace("Z,3,", "Z,-1,")
    assert "row 3: NumImages is -1; must be a whole" in refusal(write(tmp_path, bad))


# burstgpt

BURST_1 = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n"
    "5,ChatGPT,472,18,490,Conversation log\r\n"
    "45,ChatGPT,1087,0,1087,API log\r\n"
    "118,GPT-4,417,276,693,API log\r\n"
    "118,GPT-4,0,0,0,API log\r\n"
)
BURST_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,b,1.5,ChatGPT,10,20,30,Conversation log\n"
    "19440100.0,b,1.5,ChatGPT,11,21,32,Conversation log\n"
    "19440120.0,,0.5,GPT-4,12,22,34,API log\n"
    "19440130.0,a,0.5,GPT-4,13,23,36,Conversation log\n"
    "19440140.0,b,0.5,GPT-4,14,24,38,Conversation log\n"
)


def test_burstgpt_1(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, BURST_1))
    assert trace.arrival_s.tolist() == [0.0, 113.0]
    assert trace.metadata.rows_dropped == {"zero_prompt": 1, "zero_output": 1}
    assert trace.metadata.rows_read == 4
    assert trace.model is not None
    assert trace.kind is not None
    assert [trace.model[1], trace.kind[1]] == ["GPT-4", "API log"]
    assert (trace.session, trace.turn, trace.block_ids) == (None, None, None)


def test_burstgpt_3_has_its_columns_elsewhere_and_numbers_turns_by_arrival(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, BURST_3))
    assert trace.arrival_s.tolist() == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert trace.prompt_tokens.tolist() == [11, 10, 12, 13, 14]
    assert trace.session is not None
    assert trace.turn is not None
    assert [trace.session[row] for row in range(5)] == ["b", "b", None, "a", "b"]
    assert trace.turn.tolist() == [0, 1, -1, 0, 2]
    assert trace.parent is None
    assert trace.metadata.time_resolution_s == 10.0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("472,18", "x,18", "row 2: Request tokens is 'x'; must be a whole number"),
        ("45,Chat", "-45,Chat", "row 3: Timestamp is -45; must be seconds of at least 0"),
        ("Log Type", "LogType", "the nearest is burstgpt (CSV: Timestamp,Model,"),
        (",Log Type", ",Log Type,Extra", "unknown column 'Extra'; must be burstgpt"),
    ],
)
def test_bad_burstgpt(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert expected in refusal(write(tmp_path, BURST_1.replace(old, new)))


def test_burstgpt_total_that_is_no_sum_is_counted(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, BURST_1.replace("490", "491")))
    assert trace.metadata.warnings[0] == (
        "1 rows: Total tokens is not the sum of the two; left aside"
    )


# bailian


def chat(chat_id: int, parent: int, time: float, blocks: list[int], **other: Any) -> dict[str, Any]:
    row = {
        "chat_id": chat_id,
        "parent_chat_id": parent,
        "timestamp": time,
        "input_length": 16 * len(blocks),
        "output_length": 5,
        "type": "text",
        "turn": 1,
        "hash_ids": blocks,
    }
    return row | other


def test_bailian(tmp_path: Path) -> None:
    rows = [
        chat(7, -1, 0.5, [1, 2]),
        chat(9, 7, 60.25, [1, 2, 3], turn=2),
        chat(4, 999, 61.0, [2, 1], turn=5, type="search"),  # its parent is not in the file
        chat(5, 9, 62.0, [1, 2, 3, 4], turn=3, input_length=70),
        chat(6, 7, 63.0, [3], turn=2),
    ]
    trace = load_trace(write(tmp_path, rows))
    assert trace.arrival_s.tolist() == [0.0, 59.75, 60.5, 61.5, 62.5]
    assert trace.parent is not None
    assert trace.parent.tolist() == [-1, 0, -1, 1, 0]
    assert trace.think_s is None  # an open loop
    assert trace.session is not None
    assert [trace.session[row] for row in range(5)] == ["7", "7", "4", "7", "7"]
    assert trace.turn is not None
    assert trace.turn.tolist() == [0, 1, 4, 2, 1]
    assert trace.kind is not None
    assert trace.kind[2] == "search"
    # ids of single blocks: 2, 1 and 3 after nothing are other prefixes than before
    assert chains(trace) == [[0, 1], [0, 1, 2], [3, 4], [0, 1, 2, 5], [6]]
    assert trace.metadata.warnings == ("1 requests go on with a chat that is not in the file",)


def test_bailian_parent_that_comes_later_is_left_out_and_counted(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, [chat(1, 2, 0, [1]), chat(2, -1, 9, [1])]))
    assert trace.parent is None
    assert "1 requests go on with a chat that is recorded later" in trace.metadata.warnings[0]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"chat_id": 1}, "row 2: chat_id 1 is in row 1 too; each must occur once"),
        ({"parent_chat_id": -2}, "row 2: parent_chat_id is -2; must be a whole number of at le"),
        ({"timestamp": "5"}, "row 2: timestamp is '5'; must be seconds of at least 0"),
        ({"timestamp": float("nan")}, "row 2: timestamp is nan; must be seconds"),
        ({"turn": 0}, "row 2: turn is 0; must be a whole number of at least 1"),
        ({"hash_ids": [1]}, "row 2: 1 hash_ids for input_length 32; must be 2 blocks of 16 to"),
        ({"hash_ids": [1, 2**64]}, "row 2: hash_ids must lie between 0 and 2**64 - 1"),
        (
            {"input_length": 2**40},
            f"row 2: input_length is {2**40}; must be a whole number of at",
        ),
        ({"surprise": 1}, "row 2: unknown key 'surprise'; bailian has only chat_id,"),
    ],
)
def test_bad_bailian(tmp_path: Path, other: dict[str, Any], expected: str) -> None:
    rows = [chat(1, -1, 0, [1, 2]), chat(2, -1, 1, [1, 2]) | other]
    assert expected in refusal(write(tmp_path, rows))


# ragpulse


def rag(time: str, length: int, **parts: list[int]) -> dict[str, Any]:
    names = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
    ids = {name: parts.get(name, []) for name in names}
    return {
        "timestamp": time,
        "input_length": length,
        "output_length": 5,
        "hash_ids": ids,
        "session_id": "s",
    }


def write_sides(tmp_path: Path, lengths: dict[int, int]) -> None:
    keys = ("sys_prompt", "passage", "history", "user_input", "web_search")
    names = ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search")
    for number, (name, key) in enumerate(zip(names, keys, strict=True)):
        rows = [
            {f"{key}_id": part, "token_length": length}
            for part, length in lengths.items()
            if part // 100 == number
        ]
        write(tmp_path, rows or "\n", f"{name}.jsonl")


def test_ragpulse_cuts_components_into_blocks(tmp_path: Path) -> None:
    lengths = {1: 40, 2: 8, 101: 20, 301: 4, 202: 3, 401: 5}
    write_sides(tmp_path, lengths)
    rows = [
        rag("82", 81, sys_prompt=[1, 2], passages_ids=[101], user_input=[301]),
        rag("0", 81, sys_prompt=[1, 2], passages_ids=[101], user_input=[301]),
        rag("90", 72, sys_prompt=[1], passages_ids=[101], user_input=[301]),
    ]
    path = write(tmp_path, rows)
    for name, value in (("3_history", 202), ("5_web_search", 401)):
        key = name[2:] + "_id"
        write(tmp_path, [{key: value, "token_length": 3}], f"{name}.jsonl")
    trace = load_trace(path)
    assert trace.arrival_s.tolist() == [0.0, 82.0, 90.0]
    # 40 + 8 tokens are three blocks, the fourth ends in the passage (at 64 of 68); the fifth (80)
    # holds the user's 4 tokens and 9 of the template: the request's own
    assert chains(trace) == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 5], [0, 1, 6, 7]]
    assert trace.metadata.warnings == (
        "1 rows arrived before the row above them; sorted by arrival",
    )


def test_ragpulse_without_its_side_files_knows_no_prefixes(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, [rag("1", 50, sys_prompt=[1])]))
    assert trace.block_ids is None
    assert trace.metadata.prefix_scope == "none"
    assert trace.metadata.warnings[0].startswith("no prefixes: the lengths of components are in")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"timestamp": 82}, "row 1: timestamp is 82; must be whole seconds as text"),
        ({"timestamp": "noon"}, "row 1: timestamp is 'noon'; must be whole seconds as text"),
        ({"input_length": 30}, "row 1: components of 40 tokens in a prompt of 30"),
        ({"hash_ids": {"sys_prompt": [1]}}, "row 1: hash_ids: lacks passages_ids"),
        ({"hash_ids": {"rules": [1]}}, "row 1: hash_ids: unknown key 'rules'"),
    ],
)
def test_bad_ragpulse(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    write_sides(tmp_path, {1: 40, 101: 1, 202: 1, 301: 1, 401: 1})
    for name, value in (("3_history", 202), ("4_user_input", 301), ("5_web_search", 401)):
        row = {name[2:] + "_id": value, "token_length": 1}
        write(tmp_path, [row], f"{name}.jsonl")
    row = rag("1", 50, sys_prompt=[1]) | change
    assert expected in refusal(write(tmp_path, [row]))
    unknown = rag("1", 50, sys_prompt=[77])
    assert "row 1: component 77 is in none of the files" in refusal(write(tmp_path, [unknown]))


# weka


def call(time: float, tokens: int, ids: list[int], **other: Any) -> dict[str, Any]:
    return {"t": time, "type": "n", "model": "m", "in": tokens, "out": 9, "hash_ids": ids} | other


def session(name: str, *requests: dict[str, Any], **other: Any) -> dict[str, Any]:
    fixed = {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": list(requests)}
    return fixed | other


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


# tracelab


def agent_round(session_id: str, sent: str, end: str, **other: Any) -> dict[str, Any]:
    day = "2026-06-01T05:40:"
    events = [
        {"event_type": "tool_result", "timestamp": f"{day}00.5Z"},
        {"event_type": "user_message", "timestamp": day + sent},
        {"event_type": "usage_report", "timestamp": f"{day}59Z"},
        {"event_type": "text", "timestamp": day + end},
    ]
    fixed = {
        "session_id": session_id,
        "provider": "claude",
        "model": "m",
        "input_tokens_total": 100,
        "prefix_tokens": 90,
        "output_tokens": 7,
        "timing_events": events,
        "tools": [],
    }
    return fixed | other


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


# llmservingsim


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


# vidur and splitwise


def test_vidur(tmp_path: Path) -> None:
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"
    trace = load_trace(write(tmp_path, text))
    assert trace.arrival_s.tolist() == [0.0, 4.314579]
    assert trace.prompt_tokens.tolist() == [374, 396]
    path = write(tmp_path, text)
    assert "says when requests arrive; leave arrivals_s out" in refusal(path, arrivals_s=[0, 1])


def test_lengths_without_arrivals(tmp_path: Path) -> None:
    text = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n5,2,7,2.5\n6,3,9,2\n"
    path = write(tmp_path, text)
    assert load_trace(path, arrivals_s=[7, 3.5]).prompt_tokens.tolist() == [6, 5]
    assert "arrivals_s: must be finite" in refusal(path, arrivals_s=[0, float("nan")])
    assert "arrivals_s: must be numbers" in refusal(path, arrivals_s=["a", "b"])
    wrong = text.replace("6,3,9", "6,3,8")
    assert "row 3: num_total_tokens is 8; must be 6 + 3" in refusal(write(tmp_path, wrong))


def test_splitwise(tmp_path: Path) -> None:
    head = "request_id,request_type,application_id,arrival_timestamp,batch_size,"
    text = head + "prompt_size,token_size\n0,2,7,0.5,1,100,9\n1,2,8,2.5,1,200,8\n"
    trace = load_trace(write(tmp_path, text))
    assert trace.arrival_s.tolist() == [0.0, 2.0]
    assert trace.tenant is not None
    assert trace.tenant.names == ("7", "8")
    batch = text.replace("2.5,1,", "2.5,4,")
    assert "row 3: batch_size is 4; must be 1, one prompt" in refusal(write(tmp_path, batch))
    kind = text.replace("1,2,8", "1,0,8")
    assert "row 3: request_type is 0; must be 2, inference" in refusal(write(tmp_path, kind))


# benchmark tools


def mooncake_like(time: float, tokens: int, blocks: list[int], **other: Any) -> dict[str, Any]:
    fixed = {"timestamp": time, "input_length": tokens, "output_length": 5, "hash_ids": blocks}
    return fixed | other


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


BLIS = (
    "request_id,tenant_id,slo_class,vllm_priority,session_id,round_index,prefix_group,"
    "prefix_length,input_tokens,output_tokens,model,server_input_tokens,arrival_time_us,"
    "send_time_us,status\n"
    "0,acme,critical,0,s,0,g,32,10,5,,0,1000,1000,ok\n"
    "1,acme,batch,5,s,1,g,32,40,5,,90,2000,2000,ok\n"
    "2,zeta,batch,5,,0,,0,10,5,llama,14,3000,3000,ok\n"
    "3,zeta,batch,5,,0,,0,10,0,llama,14,4000,4000,timeout\n"
    "4,zeta,batch,5,,0,,0,10,3,llama,14,4000,4000,error\n"
)


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


# containers


@pytest.mark.parametrize("content", [BURST_1, BLIS, json.dumps(chat(1, -1, 0, [1]))])
def test_byte_order_mark_line_ends_blank_lines_and_cut_gz(tmp_path: Path, content: str) -> None:
    plain = load_trace(write(tmp_path, content))
    text = content.replace("\r\n", "\n").replace("\n", "\r\n") + "\r\n\r\n"
    copy = load_trace(write(tmp_path, b"\xef\xbb\xbf" + text.encode()))
    assert copy.content_hash() == plain.content_hash()
    cut = gzip.compress(content.encode())[:-9]
    assert "the compressed file is cut short" in refusal(write(tmp_path, cut))


DAMAGED = {
    "burstgpt": BURST_3,
    "bailian": json.dumps(chat(1, -1, 0, [1])) + "\n" + json.dumps(chat(2, 1, 5, [1, 2])),
    "ragpulse": json.dumps(rag("1", 50, sys_prompt=[1])),
    "weka": json.dumps(session("one", call(0, 64, [1], api_time=1.5), call(9, 70, [1]))),
    "llmservingsim": json.dumps(
        {
            "session_id": "s",
            "arrival_time_ns": 7,
            "sub_requests": [{"input_toks": 2, "output_toks": 2, "input_tok_ids": [1, 2]}] * 2,
        }
    ),
    "tracelab": json.dumps(agent_round("a", "20.151Z", "30.151Z")),
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n",
    "aiperf": json.dumps(mooncake_like(0, 64, [1], session_id="a")),
    "bench_serve": '{"input_lens": [5, 6],\n"output_lens": [1, 2],\n"start_times": [0, 1.5]}',
    "blis": BLIS,
}


@pytest.mark.parametrize("name", DAMAGED)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_small_damage_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    content = bytearray(DAMAGED[name].encode())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b"9", b"-", b",", b"]", b'"', b"null", b"1e400", b"\xff", b"{"])
        )
    path = tmp_path_factory.mktemp("damage") / "t"
    path.write_bytes(content)
    try:
        metadata = load_trace(path).metadata
    except InputError as error:
        message = str(error)
    else:
        message = f"{path}: read"
        assert metadata.rows_read == metadata.rows_kept + sum(metadata.rows_dropped.values())
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
