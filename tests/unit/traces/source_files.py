"""Small files of formats whose published traces are not at hand, and how they are read."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

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


def call(time: float, tokens: int, ids: list[int], **other: Any) -> dict[str, Any]:
    return {"t": time, "type": "n", "model": "m", "in": tokens, "out": 9, "hash_ids": ids} | other


def session(name: str, *requests: dict[str, Any], **other: Any) -> dict[str, Any]:
    fixed = {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": list(requests)}
    return fixed | other


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


def mooncake_like(time: float, tokens: int, blocks: list[int], **other: Any) -> dict[str, Any]:
    fixed = {"timestamp": time, "input_length": tokens, "output_length": 5, "hash_ids": blocks}
    return fixed | other


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
