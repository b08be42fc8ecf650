"""What each format may look like and still be read exactly."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traces import InputError, Trace, load_trace

AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:47.0000001,396,109\r\n"
    "2023-11-16 18:15:48.6805900,879,55"
)


def write(tmp_path: Path, text: str | bytes, name: str = "trace") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_azure_2023(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, AZURE_2023))
    assert trace.arrival_s.tolist() == [0.0, 0.3194101, 2.0]
    assert trace.prompt_tokens.tolist() == [374, 396, 879]
    assert trace.output_tokens.tolist() == [44, 109, 55]
    assert trace.metadata.time_resolution_s == 1e-7
    assert trace.metadata.source_name == "azure"
    assert trace.metadata.licence is None  # the columns alone do not tell the licence


def test_azure_2024_leaves_the_fraction_out_on_whole_seconds(tmp_path: Path) -> None:
    text = (
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 23:59:59.999999+00:00,2162,5\n"
        "2024-05-11 00:00:00+00:00,2399,6\n"
        "2024-05-11 00:00:00.500000+00:00,76,15\n"
    )
    trace = load_trace(write(tmp_path, text))
    assert trace.arrival_s.tolist() == [0.0, 1e-6, 0.500001]
    assert trace.metadata.t0_iso == "2024-05-10T23:59:59.999999+00:00"


def test_columns_are_read_by_name(tmp_path: Path) -> None:
    text = "GeneratedTokens , TIMESTAMP,ContextTokens\n44,2023-11-16 18:15:46,374\n"
    trace = load_trace(write(tmp_path, text))
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (374, 44)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, lambda data: data])
def test_compression_is_recognised_by_content(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    plain = load_trace(write(tmp_path, AZURE_2023, "a"))
    packed = load_trace(write(tmp_path, pack(AZURE_2023.encode()), "b.txt"))
    assert packed.content_hash() == plain.content_hash()
    assert packed.metadata.sha256 == plain.metadata.sha256


def test_zst_of_several_frames(tmp_path: Path) -> None:
    data = AZURE_2023.encode()
    frames = zstandard.compress(data[:70]) + zstandard.compress(data[70:])
    assert len(load_trace(write(tmp_path, frames))) == 3


def test_long_csv_is_read_in_batches_and_keeps_its_line_numbers(tmp_path: Path) -> None:
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    rows += [f"2023-11-16 18:15:46.{i:07d},{i + 1},7" for i in range(300_000)]
    text = "\n".join(rows)
    trace = load_trace(write(tmp_path, text))
    assert trace.prompt_tokens.tolist() == list(range(1, 300_001))
    bad = text.replace(",299991,7", ",many,7")
    with pytest.raises(InputError, match=r"row 299992: ContextTokens is 'many'; must be"):
        load_trace(write(tmp_path, bad))


def mooncake(*rows: tuple[int, int, int, list[int]]) -> str:
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return "\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in rows)


def test_mooncake_accepts_the_partial_block_and_its_absence(tmp_path: Path) -> None:
    text = mooncake((1000, 1030, 5, [0, 1, 2]), (1250, 1030, 6, [0, 1]), (4000, 512, 7, [0]))
    trace = load_trace(write(tmp_path, text))
    assert trace.arrival_s.tolist() == [0.0, 0.25, 3.0]
    assert trace.block_offsets is not None
    assert trace.block_offsets.tolist() == [0, 3, 5, 6]
    assert (trace.metadata.block_tokens, trace.metadata.prefix_scope) == (512, "global")
    assert trace.metadata.time_resolution_s == 0.25


def test_blank_lines_are_skipped_and_counted_as_lines(tmp_path: Path) -> None:
    text = "\n" + mooncake((0, 10, 1, [0]), (5, 10, 1, [0])).replace("\n", "\n\n  \n") + "\n\n"
    assert len(load_trace(write(tmp_path, text))) == 2
    with pytest.raises(InputError, match="row 5: input_length is -10"):
        load_trace(write(tmp_path, text.replace('5, "input_length": 10', '5, "input_length": -10')))
    csv = "\r\narrival_s,prompt_tokens,output_tokens\r\n\r\n0,1,1\r\n\r\n1,x,1\r\n"
    with pytest.raises(InputError, match="row 6: prompt_tokens is 'x'"):
        load_trace(write(tmp_path, csv))


def test_unsorted_rows_are_sorted_stably_and_counted(tmp_path: Path) -> None:
    text = mooncake(
        (9000, 600, 1, [7, 8]), (1000, 10, 2, [0]), (9000, 700, 3, [7, 9]), (1000, 20, 4, [0])
    )
    trace = load_trace(write(tmp_path, text))
    assert trace.output_tokens.tolist() == [2, 4, 1, 3]
    assert trace.source_row.tolist() == [1, 3, 0, 2]
    assert trace.arrival_s.tolist() == [0, 0, 8, 8]
    assert trace.block_ids is not None
    assert trace.block_ids.tolist() == [0, 0, 7, 8, 7, 9]  # chains moved with their rows
    assert trace.metadata.warnings == (
        "2 rows arrived before the row above them; sorted by arrival",
    )


def test_many_requests_at_one_time_keep_their_order(tmp_path: Path) -> None:
    rows = "".join(f"{(i * 7919) % 10},{i + 1},1\n" for i in range(5000))
    trace = load_trace(write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + rows))
    assert (np.diff(trace.source_row)[np.diff(trace.arrival_s) == 0] > 0).all()
    assert (trace.prompt_tokens == trace.source_row + 1).all()


def test_a_broken_chain_is_named_by_its_own_line_even_when_rows_move(tmp_path: Path) -> None:
    text = mooncake((900, 600, 1, [3, 2]), (100, 10, 1, [0]), (200, 600, 1, [1, 2]))
    with pytest.raises(InputError, match="row 1: block id 2 follows another block than in row 3"):
        load_trace(write(tmp_path, text))


def test_rows_that_were_not_served_are_dropped_by_name(tmp_path: Path) -> None:
    text = mooncake(
        (0, 10, 0, [5]), (10, 600, 1, [0, 1]), (20, 0, 3, []), (30, 600, 9, [0, 2]), (40, 0, 0, [])
    )
    trace = load_trace(write(tmp_path, text))
    metadata = trace.metadata
    assert (metadata.rows_read, metadata.rows_kept) == (5, 2)
    assert metadata.rows_dropped == {"zero_prompt": 2, "zero_output": 1}
    assert metadata.warnings == ("3 of 5 rows dropped: zero_prompt 2, zero_output 1",)
    assert trace.arrival_s.tolist() == [0.0, 0.02]
    assert trace.source_row.tolist() == [1, 3]
    assert trace.block_ids is not None
    assert trace.block_ids.tolist() == [0, 1, 0, 2]


FULL = {
    "request_id": ["a", "b", "c"],
    "arrival_s": [0.0, 0.125, 2.5],
    "prompt_tokens": [100, 130, 64],
    "output_tokens": [5, 6, 7],
    "max_tokens": [256, None, 16],
    "session": ["s1", "s2", None],
    "turn": [0, None, 3],
    "tenant": ["acme", "acme", "zeta"],
    "model": ["8b", "70b", "8b"],
    "priority": [0, -1, 5],
    "slo_class": ["chat", None, "batch"],
    "adapter": [None, "legal", "legal"],
    "block_ids": [[1, 2], None, [1]],
    "block_tokens": [64, None, 64],
}


def as_csv(brackets: bool) -> str:
    def cell(value: object) -> str:
        if isinstance(value, list):
            return f'"{json.dumps(value)}"' if brackets else " ".join(map(str, value))
        return "" if value is None else str(value)

    lines = [",".join(FULL)]
    lines += [",".join(cell(column[row]) for column in FULL.values()) for row in range(3)]
    return "\n".join(lines)


def as_jsonl(leave_out_nulls: bool) -> str:
    rows = [{name: column[row] for name, column in FULL.items()} for row in range(3)]
    if leave_out_nulls:
        rows = [{k: v for k, v in row.items() if v is not None} for row in rows]
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize(
    "text",
    [as_csv(True), as_csv(False), as_jsonl(True), as_jsonl(False), "parquet"],
    ids=["csv-json-lists", "csv-spaces", "jsonl-sparse", "jsonl-nulls", "parquet"],
)
def test_plain_format_is_the_same_in_every_container(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    if text == "parquet":
        pq.write_table(pa.table(FULL), path)
    else:
        write(tmp_path, text)
    trace = load_trace(path)
    reference = load_trace(write(tmp_path, as_jsonl(False), "reference"))
    assert trace.content_hash() == reference.content_hash()
    assert trace.metadata.source_name == "plain"
    assert trace.arrival_s.tolist() == [0.0, 0.125, 2.5]
    assert trace.max_tokens is not None
    assert trace.max_tokens.tolist() == [256, 0, 16]
    assert trace.turn is not None
    assert trace.turn.tolist() == [0, -1, 3]
    assert trace.priority is not None
    assert trace.priority.tolist() == [0, -1, 5]
    assert trace.session is not None
    assert [trace.session[row] for row in range(3)] == ["s1", "s2", None]
    assert trace.slo_class is not None
    assert trace.slo_class.names == ("chat", "batch")
    assert trace.adapter is not None
    assert [trace.adapter[row] for row in range(3)] == [None, "legal", "legal"]
    assert trace.block_ids is not None
    assert trace.block_ids.tolist() == [1, 2, 1]


def test_plain_needs_three_columns_only(tmp_path: Path) -> None:
    trace = load_trace(
        write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n3.5,10,2.0\n4,1e1,3")
    )
    assert trace.arrival_s.tolist() == [0.0, 0.5]
    assert trace.prompt_tokens.tolist() == [10, 10]
    assert trace.output_tokens.tolist() == [2, 3]
    for name in ("max_tokens", "block_ids", "session", "turn", "tenant", "model", "priority"):
        assert getattr(trace, name) is None


def test_columns_without_a_value_count_as_absent(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,session,max_tokens,block_ids\n0,1,1,,,\n1,1,1,,,"
    trace = load_trace(write(tmp_path, text))
    assert (trace.session, trace.max_tokens, trace.block_ids) == (None, None, None)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_parquet_round_trip(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[object]) -> list[object]:
        return data.draw(st.lists(values, min_size=count, max_size=count))

    rows = {
        "arrival_s": sorted(column(st.floats(0, 1e6))),  # type: ignore[type-var]
        "prompt_tokens": column(st.integers(1, 2**31 - 1)),
        "output_tokens": column(st.integers(1, 2**31 - 1)),
        "turn": column(st.none() | st.integers(0, 9)),
        "session": column(st.none() | st.sampled_from("äbc")),
    }
    folder = tmp_path_factory.mktemp("round")
    text = "\n".join(json.dumps({k: v[row] for k, v in rows.items()}) for row in range(count))
    trace = load_trace(write(folder, text))
    trace.to_parquet(folder / "copy")
    copy = load_trace(folder / "copy")
    assert copy.content_hash() == trace.content_hash()
    assert copy.metadata == trace.metadata
    begin = np.array(rows["arrival_s"], dtype=float)
    assert (trace.arrival_s == begin - begin[0]).all()


def test_a_trace_file_that_another_tool_cut_is_refused(tmp_path: Path) -> None:
    load_trace(write(tmp_path, AZURE_2023)).to_parquet(tmp_path / "whole")
    table = pq.read_table(tmp_path / "whole")
    pq.write_table(table.slice(0, 2), tmp_path / "cut")
    with pytest.raises(InputError, match=r"cut: holds .*\(2, None\), but its metadata says \(3, N"):
        Trace.from_parquet(tmp_path / "cut")


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = load_trace(write(tmp_path, AZURE_2023))
    path = tmp_path / "copy"
    trace.to_parquet(path)
    before = path.read_bytes()

    def full_disk(table: pa.Table, where: Path, **_: object) -> None:
        where.write_bytes(b"PAR1 half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(OSError, match="No space left"):
        trace.head(1).to_parquet(path)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["copy", "trace"]
