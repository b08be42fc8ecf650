"""Bad traces: one line that names the file, the row or column, what is wrong, what is right."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traces import InputError, load_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
PLAIN = "arrival_s,prompt_tokens,output_tokens\n"
BLOCKS = "arrival_s,prompt_tokens,output_tokens,block_ids,block_tokens\n"


def mooncake(**changes: object) -> str:
    """Two right rows, the second with changes; a change to None leaves the key out."""
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
    second = {**row, **changes}
    return "\n".join(
        json.dumps({k: v for k, v in r.items() if v is not None}) for r in (row, second)
    )


def message_for(path: Path, format: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_trace(path, format=format)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


CASES = {
    # whole files
    "empty file": ("", "is empty; a trace needs at least one row"),
    "only blank lines": ("\n \n\n", "is empty; a trace needs at least one row"),
    "header only": (AZURE, "has no rows; a trace needs at least one"),
    "plain header only": (PLAIN + "\n", "has no rows; a trace needs at least one"),
    "unknown layout": (
        "time,in,out\n1,2,3\n",
        "unknown layout: CSV with columns time,in,out; known formats are azure, burstgpt, "
        "mooncake, bailian, ragpulse, weka, tracelab, llmservingsim, vidur, splitwise, aiperf, "
        "dynamo, timed_trace, guidellm, bench_serve, blis, litellm, envoy, nginx, otel, openai, "
        "plain; the nearest is plain (CSV/JSONL/Parquet: arrival_s,prompt_tokens,output_tokens)",
    ),
    "other delimiter": (
        PLAIN.replace(",", ";") + "0;1;1\n",
        "unknown layout: CSV with columns arr",
    ),
    "two layouts at once": (
        "TIMESTAMP,ContextTokens,GeneratedTokens,arrival_s,prompt_tokens,output_tokens\n",
        "plain, fleetsim's own columns; say which with format=",
    ),
    "repeated column": (
        "arrival_s,prompt_tokens,prompt_tokens,output_tokens\n",
        "row 1: column 'prompt_tokens' occurs twice; name it once",
    ),
    "not one object per line": ("{\n", "row 1: is not JSON"),
    "a JSON array": ("[]\n", "row 1: is a JSON list; must be one object per line"),
    "nothing left": (
        AZURE + "2023-11-16 18:15:46,5,0\n",
        "no row left of 1: dropped {'zero_output': 1}",
    ),
    # azure
    "wrong column": (
        "TIMESTAMP,ContextTokens,Generated\n2023-11-16 18:15:46,1,1\n",
        "the nearest is azure (CSV: TIMESTAMP,ContextTokens,GeneratedTokens)",
    ),
    "additional column": (
        "TIMESTAMP,Images,ContextTokens,GeneratedTokens\n",
        "unknown column 'Images'; must be azure (CSV: TIMESTAMP,",
    ),
    "text in a number": (
        AZURE + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:46,many,1\n",
        "row 3: ContextTokens is 'many'; must be a whole number of at least 0",
    ),
    "empty cell": (
        AZURE + "2023-11-16 18:15:46,,1\n",
        "row 2: ContextTokens is empty; must be a whole number of at least 0",
    ),
    "negative count": (
        AZURE + "2023-11-16 18:15:46,1,-3\n",
        "row 2: GeneratedTokens is -3; must be a whole number of at least 0",
    ),
    "fraction of a token": (AZURE + "2023-11-16 18:15:46,1.5,3\n", "row 2: ContextTokens is 1.5;"),
    "infinite count": (AZURE + "2023-11-16 18:15:46,inf,3\n", "row 2: ContextTokens is "),
    "count beyond 32 bits": (
        AZURE + "2023-11-16 18:15:46,3000000000,3\n",
        "row 2: ContextTokens is 3000000000; must be a whole number of at most 2147483647",
    ),
    "bad stamp": (
        AZURE + "2023-11-16 18:15:46.5,1,1\n16.11.2023,1,1\n",
        "row 3: TIMESTAMP is '16.11.2023'; must be a time such as 2023-11-16 18:15:46.6805900",
    ),
    "empty stamp": (AZURE + ",1,1\n", "row 2: TIMESTAMP is ''; must be a time such as"),
    "offset in some rows": (
        AZURE + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:46+00:00,1,1\n",
        "row 3: TIMESTAMP is '2023-11-16 18:15:46+00:00'; must be",
    ),
    "too few cells": (
        AZURE + "2023-11-16 18:15:46,1,1\n\n2023-11-16 18:15:46,1\n",
        "row 4: 2 cells; must be 3, as in the header",
    ),
    "too many cells": (AZURE + "2023-11-16 18:15:46,1,1,9\n", "row 2: 4 cells; must be 3"),
    "open quote": (AZURE + '"2023-11-16 18:15:46,1,1\n2023-11-16 18:15:46,1,1\n', "cells; must be"),
    "not UTF-8 further down": (AZURE.encode() + b"x" * 300_000 + b"\xff,1,1\n", "UTF8"),
    # mooncake
    "missing key": (mooncake(output_length=None), "row 2: lacks output_length; needs timestamp,"),
    "unknown key": (mooncake(chat_id=3), "row 2: unknown key 'chat_id'; mooncake has only times"),
    "text for milliseconds": (
        mooncake(timestamp="5"),
        "row 2: timestamp is '5'; must be milliseconds of at least 0",
    ),
    "negative milliseconds": (mooncake(timestamp=-1), "row 2: timestamp is -1; must be milli"),
    "NaN milliseconds": (mooncake(timestamp=float("nan")), "row 2: timestamp is nan; must be mill"),
    "truth for a count": (
        mooncake(input_length=True),
        "row 2: input_length is True; must be a whole number of at least 0",
    ),
    "negative output": (mooncake(output_length=-1), "row 2: output_length is -1; must be a whole"),
    "too few hash ids": (
        mooncake(hash_ids=[]),
        "row 2: 0 hash_ids for input_length 600; must be 2 blocks of 512 tokens (or 1 without",
    ),
    "hash ids of smaller blocks": (
        mooncake(hash_ids=list(range(38))),
        "row 2: 38 hash_ids for input_length 600; must be 2 blocks of 512 tokens",
    ),
    "hash ids by component": (
        mooncake(hash_ids={"a": 1}),
        "row 2: hash_ids is a dict; must be a l",
    ),
    "text for a hash id": (mooncake(hash_ids=[0, "1"]), "row 2: hash_ids must be whole numbers"),
    "negative hash id": (
        mooncake(hash_ids=[0, -1]),
        "row 2: hash_ids must lie between 0 and 2**64",
    ),
    "no prefix chain": (
        mooncake(hash_ids=[2, 1]),
        "row 2: block id 1 follows another block than in row 1; an id must stand for one whole pre",
    ),
    "block that repeats": (mooncake(hash_ids=[0, 0]), "row 2: block id 0 follows another block"),
    "broken JSON": (mooncake() + '\n{"timestamp": 5,', "row 3: is not JSON"),
    # plain
    "misspelt column": (
        PLAIN.replace("\n", ",max_token\n") + "0,1,1,5\n",
        "unknown column 'max_token'; did you mean 'max_tokens'? the plain format has arrival_s,",
    ),
    "negative time": (
        PLAIN + "0,1,1\n-0.5,1,1\n",
        "row 3: arrival_s is -0.5; must be seconds of at least 0",
    ),
    "NaN time": (PLAIN + "nan,1,1\n", "row 2: arrival_s is nan; must be seconds of at least 0"),
    "infinite time": (PLAIN + "inf,1,1\n", "row 2: arrival_s is inf; must be seconds of at le"),
    "text for seconds": (PLAIN + "noon,1,1\n", "row 2: arrival_s is 'noon'; must be seconds of at"),
    "zero-token prompt": (
        PLAIN + "0,0,1\n",
        "row 2: prompt_tokens is 0; must be a whole number of at least 1",
    ),
    "duplicate ids": (
        "request_id,arrival_s,prompt_tokens,output_tokens\na,0,1,1\nb,0,1,1\na,0,1,1\nb,0,1,1\n",
        "row 4: request_id 'a' was used in row 2; each id must occur once",
    ),
    "max_tokens of 0": (
        PLAIN.replace("\n", ",max_tokens\n") + "0,1,1,0\n",
        "row 2: max_tokens is 0; must be a whole number of at least 1",
    ),
    "priority out of range": (
        PLAIN.replace("\n", ",priority\n") + "0,1,1,40000\n",
        "row 2: priority is 40000; must be a whole number of at most 32767",
    ),
    "block ids without a size": (
        PLAIN.replace("\n", ",block_ids\n") + "0,1,1,5\n",
        "column block_ids needs block_tokens, how many tokens one id covers",
    ),
    "two block sizes": (
        BLOCKS + "0,64,1,5,64\n0,64,1,5,32\n",
        "row 3: block_tokens is 32; must be 64 as in other rows",
    ),
    "text in block ids": (
        BLOCKS + "0,64,1,5;6,64\n",
        "row 2: block_ids must be ids separated by sp",
    ),
    "wrong number of block ids": (
        BLOCKS + "0,64,1,5,64\n1,200,1,5 6,64\n",
        "row 3: 2 block_ids for prompt_tokens 200; must be 4 blocks of 64 tokens (or 3 without",
    ),
    "block id too large": (
        BLOCKS + "0,64,1,5,64\n0,64,1,18446744073709551616,64\n",
        "row 3: block_ids must be a list of block ids between 0 and 2**64 - 1",
    ),
    "text in a JSON number": (
        '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5}\n'
        '{"arrival_s": 0, "prompt_tokens": "5", "output_tokens": 5}\n',
        "row 2: prompt_tokens is '5'; must be a number",
    ),
    "missing JSON value": (
        '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5}\n{"arrival_s": 0}\n',
        "row 2: prompt_tokens is empty; must be a whole number of at least 1",
    ),
    "misspelt key in a later row": (
        '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5}\n'
        '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5, "tenants": "a"}\n',
        "row 2: unknown column 'tenants'; did you mean 'tenant'?",
    ),
    "negative block id": (
        '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5, "block_ids": [-1], '
        '"block_tokens": 64}\n',
        "row 1: block_ids must be a list of block ids between 0 and 2**64 - 1",
    ),
    # not text at all
    "binary rubbish": (bytes(range(256)) * 9, "is neither UTF-8 text nor Parquet; give a CSV, JSO"),
    "NUL bytes": (b"arrival_s\0,x", "is neither UTF-8 text nor Parquet"),
    "UTF-16": ((PLAIN + "0,1,1\n").encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "zip": (b"PK\x03\x04....", "is a zip archive; unpack it, or use gz or zst"),
    "cut Parquet": (b"PAR1" + b"x" * 99, "is a damaged Parquet file"),
    "short gz": (gzip.compress(b"")[:5], "the compressed file is cut short; fetch or compress"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_content(tmp_path: Path, case: str) -> None:
    content, expected = CASES[case]
    path = tmp_path / "bad.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert expected in message_for(path)


def test_missing_file(tmp_path: Path) -> None:
    assert message_for(tmp_path / "none.csv") == "no such file; give the path of a trace"


def test_folder(tmp_path: Path) -> None:
    assert message_for(tmp_path) == "is a folder; name one trace file in it"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(PLAIN)
    path.chmod(0)
    assert message_for(path).startswith("cannot be read: ")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.999])
def test_truncated_compressed_file(tmp_path: Path, pack: object, kept: float) -> None:
    assert callable(pack)
    rows = "".join(f"{i * 7919 % 1000 / 8},{i * i % 977 + 1},{i % 89 + 1}\n" for i in range(90_000))
    packed = pack((PLAIN + rows).encode())
    path = tmp_path / "cut"
    path.write_bytes(packed[: int(len(packed) * kept)])
    assert "the compressed file is cut short" in message_for(path)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_damaged_compressed_file(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    rows = "".join(f"{i * 7919 % 1000 / 8},{i * i % 977 + 1},{i % 89 + 1}\n" for i in range(9000))
    packed = bytearray(pack((PLAIN + rows).encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
    path = tmp_path / "damaged"
    path.write_bytes(packed)
    assert "the compressed file is" in message_for(path)


def test_format_by_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(PLAIN + "0,1,1\n")
    assert "is CSV; must be mooncake (JSONL: timestamp," in message_for(path, "mooncake")
    assert "lacks column 'TIMESTAMP' (has arrival_s," in message_for(path, "azure")
    with pytest.raises(
        InputError, match="unknown trace format 'csv'; known are azure, burstgpt, m"
    ):
        load_trace(path, format="csv")


def parquet(tmp_path: Path, **columns: pa.Array) -> Path:
    path = tmp_path / "trace.parquet"
    base = {name: pa.array([1, 2]) for name in ("arrival_s", "prompt_tokens", "output_tokens")}
    pq.write_table(pa.table({**base, **columns}), path)
    return path


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"prompt_tokens": pa.array(["1", "2"])}, "row 1: prompt_tokens is '1'; must be a whole"),
        ({"prompt_tokens": pa.array([1, None])}, "row 2: prompt_tokens is empty; must be"),
        ({"prompt_tokens": pa.array([True, False])}, "row 1: prompt_tokens is True; must be a wh"),
        ({"arrival_s": pa.array([0.0, float("nan")])}, "row 2: arrival_s is nan; must be seconds"),
        ({"arrival_s": pa.array([0, 1], pa.timestamp("s"))}, "row 1: arrival_s is datetime"),
        ({"session": pa.array([1.5, 2.5])}, "row 1: session is 1.5; must be text"),
        ({"block_ids": pa.array(["1", "2"])}, "column block_ids is string; must be a list"),
        (
            {"block_ids": pa.array([[1], [-1]]), "block_tokens": pa.array([8, 8])},
            "row 2: block_ids must be a list of block ids",
        ),
        (
            {"block_ids": pa.array([[1], [None]]), "block_tokens": pa.array([8, 8])},
            "row 2: block_ids holds an empty id",
        ),
        ({"fleetsim": pa.array([1, 2])}, "unknown column 'fleetsim'"),
    ],
)
def test_bad_parquet(tmp_path: Path, columns: dict[str, pa.Array], expected: str) -> None:
    assert expected in message_for(parquet(tmp_path, **columns))


def test_damaged_metadata(tmp_path: Path) -> None:
    table = pa.table({n: [1] for n in ("arrival_s", "prompt_tokens", "output_tokens")})
    path = tmp_path / "trace.parquet"
    pq.write_table(table.replace_schema_metadata({b"fleetsim.trace": b"{"}), path)
    assert "its fleetsim.trace metadata is damaged" in message_for(path)
    pq.write_table(
        table.replace_schema_metadata({b"fleetsim.trace": b'{"schema_version":9}'}), path
    )
    assert "common schema version 9; this fleetsim reads version 1" in message_for(path)


def test_a_line_break_in_what_is_quoted_does_not_break_the_line(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('{"arrival_s": 0, "prompt\\ntokens": 5, "output_tokens": 5}\n')
    assert "prompt\\ntokens" in message_for(path)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        [
            AZURE + "2023-11-16 18:15:46.5,1,1\n2023-11-16 18:15:47,2,2\n",
            mooncake(),
            PLAIN + "0,1,1\n1,2,2\n",
            BLOCKS + "0,64,1,5,64\n1,70,1,5 6,64\n",
            '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5, "session": "a"}\n',
        ]
    ),
    st.data(),
)
def test_any_small_damage_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject
) -> None:
    content = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        if not content:
            break
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
