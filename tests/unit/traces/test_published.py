"""The published traces, read whole: counts, sums and statistics as known from the files."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.traces import FORMATS, InputError, Trace, build_segments, load_trace, trace_stats
from fleetsim.traces.stats import LengthStats


@pytest.fixture(scope="module")
def azure_code(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/azure_2023/AzureLLMInferenceTrace_code.csv")


@pytest.fixture(scope="module")
def azure_conv(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/azure_2023/AzureLLMInferenceTrace_conv.csv")


@pytest.fixture(scope="module")
def mooncake(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/mooncake_fast25/conversation_trace.jsonl.gz")


def test_azure_code(azure_code: Trace) -> None:
    stats = trace_stats(azure_code)
    assert stats.requests == 8819
    assert (stats.prompt_tokens.total, stats.output_tokens.total) == (18_059_974, 245_896)
    assert stats.span_s / 60 == pytest.approx(57.3, abs=0.05)
    assert stats.rate_rps == pytest.approx(2.57, abs=0.005)
    prompt, output = stats.prompt_tokens, stats.output_tokens
    assert [round(prompt.mean), prompt.p50, round(prompt.p99), prompt.max] == [
        2048, 1469, 7436, 7437,
    ]  # fmt: skip
    assert [round(output.mean), output.p50, round(output.p99), output.max] == [28, 13, 251, 1899]
    assert stats.interarrival_cv == pytest.approx(13.15, abs=0.005)


def test_azure_conversation(azure_conv: Trace) -> None:
    stats = trace_stats(azure_conv)
    assert stats.requests == 19_366
    assert (stats.prompt_tokens.total, stats.output_tokens.total) == (22_361_870, 4_088_665)
    assert stats.span_s / 60 == pytest.approx(58.4, abs=0.05)
    prompt, output = stats.prompt_tokens, stats.output_tokens
    assert [round(prompt.mean), prompt.p50, prompt.p99, prompt.max] == [1155, 1020, 4142, 14_050]
    assert [round(output.mean), output.p50, output.p99, output.max] == [211, 129, 601, 1000]
    assert stats.interarrival_cv == pytest.approx(1.09, abs=0.005)
    assert stats.ideal_prefix_hit_share is None


def test_azure_metadata(azure_conv: Trace) -> None:
    metadata = azure_conv.metadata
    assert metadata.t0_iso == "2023-11-16T18:15:46.680590"
    assert metadata.time_resolution_s == 1e-6
    assert metadata.sha256 == "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8"
    assert metadata.source_path == "AzureLLMInferenceTrace_conv.csv"
    assert metadata.licence is not None
    assert metadata.licence.startswith("CC-BY-4.0")
    assert (metadata.rows_read, metadata.rows_kept, metadata.rows_dropped) == (19_366, 19_366, {})
    assert (metadata.prefix_scope, metadata.block_tokens) == ("none", None)
    assert metadata.warnings == ()
    assert azure_conv.block_ids is None
    # second row: 18:15:50.9951690
    assert azure_conv.arrival_s[:2].tolist() == [0.0, 4.314579]


def test_mooncake_conversation(mooncake: Trace) -> None:
    stats = trace_stats(mooncake)
    assert stats.requests == 12_031
    assert stats.span_s / 60 == pytest.approx(59.0, abs=0.06)
    prompt, output = stats.prompt_tokens, stats.output_tokens
    assert [round(prompt.mean), prompt.p50, round(prompt.p99), prompt.max] == [
        12_035, 6909, 85_400, 126_195,
    ]  # fmt: skip
    assert [round(output.mean), output.p50, round(output.p99), output.max] == [343, 350, 1119, 2000]
    assert stats.interarrival_cv == pytest.approx(3.03, abs=0.005)
    assert stats.ideal_prefix_hit_share == pytest.approx(0.374, abs=0.0005)


def test_mooncake_blocks(mooncake: Trace) -> None:
    assert mooncake.block_ids is not None
    assert mooncake.block_offsets is not None
    assert len(mooncake.block_ids) == 288_500
    assert mooncake.block_ids[:14].tolist() == list(range(14))
    # every block is a miss once: the ideal block hit ratio
    assert 1 - len(np.unique(mooncake.block_ids)) / 288_500 == pytest.approx(0.3664, abs=5e-5)
    assert (np.diff(mooncake.block_offsets) == -(-mooncake.prompt_tokens // 512)).all()


def test_mooncake_says_that_its_stamps_are_batches(mooncake: Trace) -> None:
    assert mooncake.metadata.time_resolution_s == 3.0
    assert len(np.unique(mooncake.arrival_s)) == 1180
    assert any("share their arrival time" in warning for warning in mooncake.metadata.warnings)
    assert mooncake.metadata.licence is not None
    assert mooncake.metadata.sha256 == (
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"
    )


@pytest.fixture(scope="module")
def ragpulse(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/ragpulse/0_trace.jsonl")


@pytest.fixture(scope="module")
def weka(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/weka_agentic/claude_code_40_sessions.jsonl.gz")


@pytest.fixture(scope="module")
def sharegpt(shared_dir: Path) -> Trace:
    path = "traces/llmservingsim/sharegpt-llama-3.1-8b-300-sps10.jsonl.gz"
    return load_trace(shared_dir / path)


def lengths(stats: LengthStats) -> list[float]:
    return [round(stats.mean), round(stats.p50), round(stats.p99), stats.max]


def dispersion(trace: Trace) -> list[float]:
    """Variance over mean of the counts in whole windows of 1, 10 and 60 s."""
    found = []
    for window_s in (1, 10, 60):
        counts = np.bincount((trace.arrival_s // window_s).astype(np.int64))
        counts = counts[: int(trace.arrival_s[-1] // window_s)]
        found.append(float(f"{counts.var() / counts.mean():.3g}"))
    return found


def test_dispersion_of_counts(
    azure_code: Trace, azure_conv: Trace, mooncake: Trace, ragpulse: Trace
) -> None:
    assert dispersion(azure_code) == [13.2, 71.6, 164]
    assert dispersion(azure_conv) == pytest.approx([1.39, 3.9, 16.1], abs=0.05)
    assert dispersion(mooncake) == pytest.approx([7.9, 2.1, 2.9], abs=0.05)
    assert dispersion(ragpulse) == pytest.approx([1.0, 1.1, 1.7], abs=0.05)


def test_ragpulse(ragpulse: Trace) -> None:
    stats = trace_stats(ragpulse)
    assert stats.requests == 7106
    assert stats.span_s / 86_400 == pytest.approx(7.0, abs=0.05)
    assert stats.rate_rps == pytest.approx(0.012, abs=0.0005)
    assert stats.interarrival_cv == pytest.approx(3.06, abs=0.005)
    assert lengths(stats.prompt_tokens) == [2944, 3140, 5438, 7712]
    assert lengths(stats.output_tokens) == [283, 234, 891, 2183]
    assert int((np.diff(ragpulse.arrival_s) == 0).sum()) == 90
    metadata = ragpulse.metadata
    assert (metadata.rows_read, metadata.rows_kept) == (7106, 7106)
    assert metadata.time_resolution_s == 1.0
    assert "1 rows arrived before the row above" in metadata.warnings[0]
    assert metadata.licence is not None
    assert metadata.licence.startswith("MIT")
    assert ragpulse.session is not None
    assert len(ragpulse.session.names) == 3990
    assert ragpulse.turn is not None
    assert ragpulse.turn.max() == 24


def test_ragpulse_shares_equal_components_from_the_start(ragpulse: Trace, shared_dir: Path) -> None:
    def read(name: str) -> list[dict[str, Any]]:
        lines = (shared_dir / "traces/ragpulse" / name).read_text().splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    tokens = {
        value["passage_id" if "passage_id" in value else next(iter(value))]: value["token_length"]
        for name in ("1_sys_prompt", "2_passages", "3_history", "4_user_input", "5_web_search")
        for value in read(f"{name}.jsonl")
    }
    rows = read("0_trace.jsonl")
    assert ragpulse.block_offsets is not None
    assert ragpulse.block_ids is not None
    chains = np.split(ragpulse.block_ids, ragpulse.block_offsets[1:-1])
    assert [len(chain) for chain in chains] == (ragpulse.prompt_tokens // 16).tolist()

    def parts(request: int) -> list[int]:
        found = rows[int(ragpulse.source_row[request])]["hash_ids"]
        names = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
        return [part for name in names for part in found[name]]

    random = np.random.default_rng(1)
    shared_blocks = 0
    for first, second in random.integers(0, len(ragpulse), size=(2000, 2)):
        shared = 0
        for one, other in zip(parts(first), parts(second), strict=False):
            if one != other:
                break
            shared += tokens[one]
        if first == second:
            continue
        both = min(len(chains[first]), len(chains[second]))
        same = chains[first][:both] == chains[second][:both]
        assert int(same.sum()) == shared // 16
        shared_blocks += shared // 16
    assert shared_blocks > 1000


def test_weka(weka: Trace) -> None:
    metadata = weka.metadata
    # 993 items: 989 requests and 4 subagents with 44 requests
    assert (metadata.rows_read, metadata.rows_kept, metadata.rows_dropped) == (1033, 1033, {})
    assert weka.session is not None
    assert weka.kind is not None
    assert len(weka.session.names) == 40
    kinds = np.bincount(weka.kind.codes)
    assert dict(zip(weka.kind.names, kinds.tolist(), strict=True)) == {"agent": 989, "subagent": 44}
    assert weka.think_s is not None
    assert weka.parent is not None
    starts = np.flatnonzero(np.isnan(weka.think_s))
    assert len(starts) == 40
    assert (weka.arrival_s[starts] == 0).all()
    assert (weka.parent[starts] == -1).all()
    waits = np.flatnonzero(~np.isnan(weka.think_s))
    assert (weka.session.codes[waits] == weka.session.codes[weka.parent[waits]]).all()
    assert weka.block_offsets is not None
    assert (np.diff(weka.block_offsets) == weka.prompt_tokens // 64).all()
    assert any("no arrival times" in warning for warning in metadata.warnings)
    assert any("4 subagents with 44 requests" in warning for warning in metadata.warnings)


def test_weka_sessions_share_nothing(weka: Trace) -> None:
    assert weka.block_offsets is not None
    assert weka.block_ids is not None
    assert weka.session is not None
    session = np.repeat(weka.session.codes, np.diff(weka.block_offsets))
    pairs = np.unique(np.stack([weka.block_ids, session.astype(np.uint64)]), axis=1)
    assert pairs.shape[1] == len(np.unique(weka.block_ids))
    share = trace_stats(weka).ideal_prefix_hit_share
    assert share is not None
    assert share > 0.9  # within sessions


def test_weka_subagents_run_beside_each_other_and_hold_up_the_session(weka: Trace) -> None:
    assert weka.session is not None
    assert weka.kind is not None
    assert weka.parent is not None
    assert weka.think_s is not None
    inside = np.flatnonzero(weka.session.codes == weka.session.names.index("trace_0277"))
    nested = [row for row in inside if weka.kind[int(row)] == "subagent"]
    first = inside[0]
    # three start right after the first answer, at 18.78 s
    starts = [row for row in nested if weka.parent[row] == first]
    assert len(starts) == 3
    assert weka.think_s[starts] == pytest.approx([0.69, 0.68, 0.69], abs=0.02)
    # the session went on at 228 s, after the one that ended last
    after = next(r for r in inside if weka.kind[int(r)] == "agent" and weka.arrival_s[r] == 228.0)
    waited_for = weka.parent[after]
    assert waited_for in nested
    assert weka.arrival_s[waited_for] + 42.06 + weka.think_s[after] == pytest.approx(228.0)


def test_llmservingsim(sharegpt: Trace, shared_dir: Path) -> None:
    stats = trace_stats(sharegpt)
    assert stats.requests == 300
    assert round(stats.span_s) == 29
    assert stats.rate_rps == pytest.approx(10.3, abs=0.05)
    assert stats.interarrival_cv == pytest.approx(0.94, abs=0.005)
    assert lengths(stats.prompt_tokens) == [857, 732, 2765, 3998]
    assert lengths(stats.output_tokens) == [653, 632, 784, 1021]
    assert sharegpt.output_tokens.min() == 512
    assert sharegpt.metadata.block_tokens == 16
    # equal ids where, and only where, all tokens so far are equal
    path = shared_dir / "traces/llmservingsim/sharegpt-llama-3.1-8b-300-sps10.jsonl.gz"
    numbers: dict[tuple[int, ...], int] = {}
    expected = []
    for row in map(json.loads, gzip.decompress(path.read_bytes()).splitlines()):
        tokens = tuple(row["input_tok_ids"])
        ends = range(16, len(tokens) + 1, 16)
        expected += [numbers.setdefault(tokens[:end], len(numbers)) for end in ends]
    assert sharegpt.block_ids is not None
    _, ids = np.unique(sharegpt.block_ids, return_inverse=True)
    pairs = set(zip(expected, ids.tolist(), strict=True))
    assert len(pairs) == len(numbers) == len(np.unique(ids))


def test_vidur_lengths_need_arrivals(shared_dir: Path) -> None:
    path = shared_dir / "traces/vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv"
    with pytest.raises(InputError, match="does not say when requests arrive"):
        load_trace(path)
    trace = load_trace(path, arrivals_s=np.arange(28_257) / 10)
    stats = trace_stats(trace)
    assert stats.requests == 28_257
    assert lengths(stats.prompt_tokens) == [2588, 2730, 3933, 4054]
    assert lengths(stats.output_tokens) == [291, 167, 3271, 4056]
    assert stats.rate_rps == pytest.approx(10, abs=0.001)
    assert (trace.prompt_tokens + trace.output_tokens).max() <= 4096
    with pytest.raises(InputError, match=r"has 28257 rows; arrivals_s is of shape \(3,\)"):
        load_trace(path, arrivals_s=[1, 2, 3])


def test_parquet_round_trip_of_every_published_trace(
    azure_code: Trace,
    azure_conv: Trace,
    mooncake: Trace,
    ragpulse: Trace,
    weka: Trace,
    sharegpt: Trace,
    tmp_path: Path,
) -> None:
    for trace in (azure_code, azure_conv, mooncake, ragpulse, weka, sharegpt):
        trace.to_parquet(tmp_path / "copy.parquet")
        copy = Trace.from_parquet(tmp_path / "copy.parquet")
        assert copy.content_hash() == trace.content_hash()
        assert copy.metadata == trace.metadata
        assert (copy.source_row == trace.source_row).all()
    assert list(tmp_path.iterdir()) == [tmp_path / "copy.parquet"]


def test_reading_is_fast(shared_dir: Path, mooncake: Trace) -> None:
    path = shared_dir / "traces/azure_2023/AzureLLMInferenceTrace_conv.csv"

    def cpu_s(work: object) -> float:
        assert callable(work)
        spent = []
        for _ in range(3):
            begin = time.process_time()
            work()
            spent.append(time.process_time() - begin)
        return min(spent)

    assert cpu_s(lambda: load_trace(path)) < 0.3  # 19,366 rows; about 0.02 s
    assert cpu_s(lambda: build_segments(mooncake)) < 1.0  # 288,500 ids; about 0.04 s


@pytest.mark.parametrize(
    "file", ["ragpulse/1_sys_prompt.jsonl", "servegen/reason_and_multimodal.tar.gz"]
)
def test_files_that_are_no_trace_are_refused_in_one_line(shared_dir: Path, file: str) -> None:
    with pytest.raises(InputError) as caught:
        load_trace(shared_dir / "traces" / file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(shared_dir / "traces" / file))
    assert len(message) < 600


def test_formats_are_listed_by_name() -> None:
    assert next(iter(FORMATS)) == "azure"
    assert list(FORMATS)[-6:] == ["litellm", "envoy", "nginx", "otel", "openai", "plain"]
    assert all(form.about and form.required for form in FORMATS.values())
