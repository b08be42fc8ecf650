"""Other formats: what comes back, what is said to be lost, and that no sharing is invented."""

import csv
import json
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traces import Categorical, InputError, Trace, load_sample, load_trace
from fleetsim.traces.convert import TARGETS, convert_trace
from fleetsim.traces.prefix_tree import find_broken_chain
from fleetsim.traces.reuse import shared_prompt_tokens
from fleetsim.traces.writers.chains import whole_chains

from .some_traces import chained_traces, full_traces

COLUMNS = ("session", "tenant", "model", "slo_class", "adapter", "kind")


def lost_columns(lost: tuple[str, ...]) -> set[str]:
    return {name for line in lost for name in line.partition(":")[0].split(", ")}


def same(a: Trace, b: Trace, *columns: str) -> bool:
    for name in columns:
        one, two = getattr(a, name), getattr(b, name)
        if name in COLUMNS:
            rows = range(len(a))
            if [one and one[i] for i in rows] != [two and two[i] for i in rows]:
                return False
        elif (one is None) != (two is None) or not (
            one is None or np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
        ):
            return False
    return True


@settings(max_examples=150)
@given(chained_traces(), st.integers(1, 8))
def test_blocks_are_equal_exactly_where_prompts_are_known_to_be(trace: Trace, size: int) -> None:
    """Every prompt as the tokens that it is known to consist of, cut by hand."""
    assert trace.block_offsets is not None
    assert trace.block_ids is not None
    block_tokens = trace.metadata.block_tokens
    assert block_tokens is not None
    chains = whole_chains(trace, size)
    assert find_broken_chain(chains.offsets, chains.ids.astype(np.uint64)) is None
    prompts, blocks = [], []
    for row, prompt in enumerate(trace.prompt_tokens.tolist()):
        own = trace.block_ids[trace.block_offsets[row] : trace.block_offsets[row + 1]].tolist()
        tokens = [(b, i) for b in own for i in range(block_tokens)][:prompt]
        prompts.append(tokens + [(-1 - row, i) for i in range(prompt - len(tokens))])
        blocks.append(chains.ids[chains.offsets[row] : chains.offsets[row + 1]].tolist())
        assert len(blocks[-1]) == -(-prompt // size)
    for a in range(len(prompts)):
        for b in range(len(prompts)):
            for place, (one, two) in enumerate(zip(blocks[a], blocks[b], strict=False)):
                ends = [min((place + 1) * size, len(prompts[i])) for i in (a, b)]
                end = min(ends)
                if one == two:  # never invented
                    assert prompts[a][:end] == prompts[b][:end]
                elif ends[0] == ends[1]:  # and never dropped where both blocks are as long
                    assert prompts[a][:end] != prompts[b][:end]


@given(full_traces())
def test_timed_trace_comes_back_whole(trace: Trace) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        done = convert_trace(trace, path, to="timed_trace")
        back = load_trace(path)
    assert same(trace, back, "arrival_s", "prompt_tokens", "output_tokens", *COLUMNS)
    if trace.block_ids is not None:
        assert shared_prompt_tokens(back) == shared_prompt_tokens(trace)
    else:
        assert shared_prompt_tokens(back) == 0
    for name, unknown in (("max_tokens", 0), ("turn", -1), ("priority", 0)):
        one, two = getattr(trace, name), getattr(back, name)
        nothing = np.full(len(trace), unknown)
        assert np.array_equal(nothing if one is None else one, nothing if two is None else two)
    links = trace.parent is not None and (trace.parent >= 0).any()
    if links:
        assert same(trace, back, "parent", "think_s")
        assert {"parent", "think_s"} <= lost_columns(done.lost)  # vLLM waits for no one
    # every started block has an id: vLLM would make the prompt shorter
    assert back.block_offsets is not None
    size = back.metadata.block_tokens
    assert size is not None
    assert (np.diff(back.block_offsets) == -(-back.prompt_tokens // size)).all()


@given(full_traces())
def test_mooncake_comes_back_or_says_what_not(trace: Trace) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.jsonl"
        done = convert_trace(trace, path, to="mooncake")
        back = load_trace(path, format="mooncake")
        assert path.read_text().count("\n") == len(trace)
    lost = lost_columns(done.lost)
    assert same(trace, back, "prompt_tokens", "output_tokens")
    assert np.abs(back.arrival_s - trace.arrival_s).max() <= 0.0005 + 1e-12
    assert ("arrival_s" in lost) == (not same(trace, back, "arrival_s"))
    for name in (*COLUMNS, "max_tokens", "turn", "priority", "parent", "think_s"):
        column = getattr(trace, name)
        unknown = {"max_tokens": 0, "priority": 0}.get(name, -1)
        values = column.codes if isinstance(column, Categorical) else column
        stated = values is not None and not np.all((values == unknown) | np.isnan(values))
        assert (name in lost) == stated, name
    if trace.block_ids is None:
        assert "block_ids" in lost
        assert shared_prompt_tokens(back) == 0
    else:
        before = shared_prompt_tokens(replace(trace, adapter=None))
        after = shared_prompt_tokens(back)
        assert after <= before
        assert ("block_ids" in lost) == (after < before)


@given(full_traces())
def test_blis_holds_what_it_does_not_list(trace: Trace) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "b.csv"
        done = convert_trace(trace, path, to="blis")
        assert done.paths == (path, path.with_suffix(".yaml"))
        header = yaml.safe_load(done.paths[1].read_text())
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
            columns = list(rows[0])
    assert header["time_unit"] == "microseconds"
    lost = lost_columns(done.lost)
    assert len(rows) == len(trace)
    for i, row in enumerate(rows):
        assert int(row["input_tokens"]) == trace.prompt_tokens[i]
        assert int(row["output_tokens"]) == trace.output_tokens[i]
        written = int(row["arrival_time_us"]) / 1e6
        assert written == pytest.approx(trace.arrival_s[i], abs=0.51e-6, rel=0)
        assert written == trace.arrival_s[i] or "arrival_s" in lost
        for column, name in (
            ("tenant_id", "tenant"),
            ("session_id", "session"),
            ("slo_class", "slo_class"),
            ("model", "model"),
            ("adapter", "adapter"),
        ):
            labels = getattr(trace, name)
            assert row.get(column, "") == ((labels and labels[i]) or "")
        if trace.turn is not None and trace.turn[i] >= 0:
            assert int(row["round_index"]) == trace.turn[i] or "turn" in lost
        if trace.priority is not None and "priority" not in lost:
            assert int(row.get("vllm_priority", 0)) == trace.priority[i]
        if trace.think_s is not None and not np.isnan(trace.think_s[i]):
            written = int(row["think_time_us"]) / 1e6
            assert (written == trace.think_s[i] and written > 0) or "think_s" in lost
    if "vllm_priority" in columns:
        assert columns.index("vllm_priority") == 4
    assert [c for c in columns if c != "vllm_priority"][:27][-1] == "finish_reason"


def test_blis_counts_rounds_from_zero_in_order_of_turns() -> None:
    sample = load_sample().head(200)
    assert sample.session is not None
    with TemporaryDirectory() as folder:
        path = Path(folder) / "b.csv"
        convert_trace(sample, path, to="blis")
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    rounds: dict[str, list[int]] = {}
    for row in rows:
        rounds.setdefault(row["session_id"], []).append(int(row["round_index"]))
    assert max(map(len, rounds.values())) > 1
    assert all(sorted(r) == list(range(len(r))) for r in rounds.values())


@pytest.mark.parametrize(
    ("think_s", "words"),
    [(0.0, "1 are 0 us, which BLIS takes"), (1 / 3, "not whole microseconds"), (2.5, None)],
)
def test_blis_says_which_think_times_it_cannot_hold(
    tmp_path: Path, think_s: float, words: str | None
) -> None:
    trace = replace(
        load_sample().head(2),
        session=Categorical.from_values(["a", "a"]),
        turn=np.array([0, 1], np.int32),
        parent=np.array([-1, 0]),
        think_s=np.array([np.nan, think_s]),
    )
    lost = convert_trace(trace, tmp_path / "b.csv", to="blis").lost
    said = [line for line in lost if line.startswith(("think_s", "parent"))]
    assert len(said) == (words is not None)
    assert words is None or words in said[0]


def test_parquet_loses_nothing(tmp_path: Path) -> None:
    sample = load_sample()
    done = convert_trace(sample, tmp_path / "s.parquet", to="parquet", strict=True)
    assert (done.lost, done.command) == ((), None)
    back = load_trace(tmp_path / "s.parquet")
    assert back.content_hash() == sample.content_hash()
    assert back.metadata == sample.metadata


def test_mooncake_as_published_comes_out_byte_for_byte(shared_dir: Path, tmp_path: Path) -> None:
    import gzip

    source = shared_dir / "traces/mooncake_fast25/conversation_trace.jsonl.gz"
    done = convert_trace(load_trace(source), tmp_path / "m.jsonl", to="mooncake", strict=True)
    assert done.lost == ()
    assert (tmp_path / "m.jsonl").read_bytes() == gzip.decompress(source.read_bytes())


def test_strict_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"would lose .*tenant"):
        convert_trace(load_sample(), tmp_path / "m.jsonl", to="mooncake", strict=True)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=f"known are {', '.join(TARGETS)}"):
        convert_trace(load_sample(), tmp_path / "m.jsonl", to="csv")


def test_a_parent_in_another_session_is_said_to_be_lost(tmp_path: Path) -> None:
    trace = load_sample().head(3)
    odd = replace(
        trace,
        session=Categorical.from_values(["a", "b", "c"]),
        turn=np.array([0, 0, 0], np.int32),
        parent=np.array([-1, 0, -1]),
        think_s=np.array([np.nan, 1.0, np.nan]),
    )
    done = convert_trace(odd, tmp_path / "t.jsonl", to="timed_trace")
    assert any(line.startswith("parent, think_s: ") for line in done.lost)
    assert load_trace(tmp_path / "t.jsonl").parent is None


@pytest.mark.parametrize("to", ["mooncake", "timed_trace"])
def test_the_command_fits_the_file(to: str, tmp_path: Path) -> None:
    """Read the file by the command's options, as vLLM's TimedTrace does."""
    sample = load_sample().head(300)
    path = tmp_path / "a trace.jsonl"
    done = convert_trace(sample, path, to=to)
    assert done.command is not None
    words = shlex.split(done.command)
    option = dict(pairwise(words))
    assert option["--dataset-path"] == str(path)
    assert option["--num-prompts"] == "300"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    label = "--timed-trace-label-"
    scale = float(option["--timed-trace-sec-multiplier"])
    stamps = [row[option.get(label + "timestamp", "timestamp")] * scale for row in rows]
    assert stamps == pytest.approx(sample.arrival_s.tolist())
    prompts = [row[option.get(label + "input-length", "input_length")] for row in rows]
    assert prompts == sample.prompt_tokens.tolist()
    outputs = [row[option.get(label + "output-length", "output_length")] for row in rows]
    assert outputs == sample.output_tokens.tolist()
    size = int(option["--timed-trace-chunk-hash-size"])
    ids = [len(row[option.get(label + "hash-ids", "hash_ids")]) for row in rows]
    assert all((n - 1) * size < p <= n * size for n, p in zip(ids, prompts, strict=True))
