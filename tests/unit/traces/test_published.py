"""The published traces, read whole: counts, sums and statistics as known from the files."""

import time
from pathlib import Path

import numpy as np
import pytest

from fleetsim.traces import FORMATS, InputError, Trace, build_segments, load_trace, trace_stats


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


def test_parquet_round_trip_of_every_published_trace(
    azure_code: Trace, azure_conv: Trace, mooncake: Trace, tmp_path: Path
) -> None:
    for trace in (azure_code, azure_conv, mooncake):
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
    "file",
    [
        "ragpulse/0_trace.jsonl",
        "ragpulse/1_sys_prompt.jsonl",
        "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
        "llmservingsim/example_trace.jsonl",
        "llmservingsim/sharegpt-llama-3.1-8b-300-sps10.jsonl.gz",
        "weka_agentic/claude_code_40_sessions.jsonl.gz",
        "servegen/reason_and_multimodal.tar.gz",
    ],
)
def test_layouts_without_a_loader_are_refused_in_one_line(shared_dir: Path, file: str) -> None:
    with pytest.raises(InputError) as caught:
        load_trace(shared_dir / "traces" / file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(shared_dir / "traces" / file))
    assert len(message) < 600


def test_formats_are_listed_by_name() -> None:
    known = ["azure", "mooncake", "plain", "litellm", "envoy", "nginx", "otel", "openai"]
    assert list(FORMATS) == known
    assert all(form.about and form.required for form in FORMATS.values())
