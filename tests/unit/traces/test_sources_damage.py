"""Files of every format, packed, marked and damaged."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.traces.source_files import (
    BLIS,
    BURST_1,
    BURST_3,
    agent_round,
    call,
    chat,
    mooncake_like,
    rag,
    refusal,
    session,
    write,
)

from fleetsim.traces import InputError, load_trace


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
