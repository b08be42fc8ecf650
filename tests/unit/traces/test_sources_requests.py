"""Published traces of single requests and chats: small files, and what may be wrong in them."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from unit.traces.source_files import (
    BURST_1,
    BURST_3,
    chains,
    chat,
    rag,
    refusal,
    write,
    write_sides,
)

from fleetsim.traces import load_trace


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
