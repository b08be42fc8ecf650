"""The stat logger inside vLLM: what it writes, when it writes nothing, and that it never raises."""

import importlib
import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from unit.calibration import fake_vllm

from fleetsim.calibration.stats_file import FILE_VARIABLE, path_beside, read_stats_file
from fleetsim.traces.errors import InputError


@pytest.fixture
def logger_class(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake_vllm.install(monkeypatch)
    return importlib.import_module("fleetsim.calibration.vllm_stat_logger").RecordingStatLogger


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "stats.jsonl"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


def record_two(logger: Any) -> None:
    first = fake_vllm.IterationStats(
        1000.5, 300, 3, time_to_first_tokens_iter=[0.5, 0.25], inter_token_latencies_iter=[0.01]
    )
    last = fake_vllm.IterationStats(
        1001.0,
        num_generation_tokens=2,
        inter_token_latencies_iter=[0.02, 0.03],
        finished_requests=[
            fake_vllm.Finished("a", "length", 1.0, 200, 4, 0.1, 0.4, 0.5),
            fake_vllm.Finished("b", "abort", 0.7, 100, 1, 0.1, 0.2, 0.0),
        ],
    )
    logger.record(fake_vllm.scheduler_stats(), first)
    logger.record(fake_vllm.scheduler_stats(1), last, None, 0)
    logger.record(fake_vllm.scheduler_stats(0), None, mm_cache_stats=None, engine_idx=0)


def test_what_is_written_is_what_vllm_said(logger_class: Any, recording: Path) -> None:
    logger = logger_class(fake_vllm.config(), 0)
    logger.log_engine_initialized()
    assert json.loads(recording.read_text())["gpu"] == "Made GPU"
    record_two(logger)
    logger.log()
    stats = read_stats_file(recording)
    assert stats.header.num_gpu_blocks == 2000
    assert (stats.prompt_tokens, stats.generation_tokens) == (300, 5)
    assert (stats.ttft_count, stats.ttft_sum_s) == (2, 0.75)
    assert (stats.itl_count, stats.itl_sum_s) == (3, pytest.approx(0.06))
    (wall_s, first), (_, second) = stats.finished
    assert (wall_s, first.e2e_s, first.queued_s, first.decode_s) == (1001.0, 1.0, 0.1, 0.5)
    assert (first.prompt_tokens, first.output_tokens) == (200, 4)
    assert second.finish_reason == "abort"
    lines = [json.loads(line) for line in recording.read_text().splitlines()[1:]]
    assert [line["running"] for line in lines] == [3, 1, 0]
    assert {(line["waiting"], line["kv_usage"], line["prefix_hits"]) for line in lines} == {
        (3, 0.25, 40)
    }
    assert fake_vllm.LOGGER.messages == []


def test_without_the_variable_it_writes_nothing(
    logger_class: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    logger = logger_class(None)  # not even its configuration is looked at
    record_two(logger)
    logger.log()
    logger.log_engine_initialized()
    assert list(tmp_path.iterdir()) == []
    assert fake_vllm.LOGGER.messages == []


def test_a_failure_is_logged_once_and_vllm_goes_on(logger_class: Any, recording: Path) -> None:
    logger = logger_class(fake_vllm.config())
    record_two(logger)
    logger.log()
    for _ in range(3):
        logger.record(object(), object())
    logger.log()
    assert len(fake_vllm.LOGGER.messages) == 1
    assert "vLLM goes on" in fake_vllm.LOGGER.messages[0]
    assert len(read_stats_file(recording).finished) == 2  # what was written before stays


def test_a_file_that_exists_is_left_alone(logger_class: Any, recording: Path) -> None:
    recording.write_text("mine")
    record_two(logger_class(fake_vllm.config()))
    assert recording.read_text() == "mine"
    assert len(fake_vllm.LOGGER.messages) == 1


def test_each_engine_and_each_api_process_has_its_file(logger_class: Any, recording: Path) -> None:
    loggers = [
        logger_class(fake_vllm.config(), 0),
        logger_class(fake_vllm.config(), 1),
        logger_class(fake_vllm.config(api_process=2, api_processes=3), 0),
    ]
    for logger in loggers:
        record_two(logger)
        logger.log()
    names = sorted(path.name for path in recording.parent.iterdir())
    assert names == ["stats.jsonl", "stats.jsonl.api2", "stats.jsonl.dp1"]
    assert read_stats_file(recording.with_name("stats.jsonl.api2")).api_processes == 3
    header = json.loads(recording.with_name("stats.jsonl.dp1").read_text().splitlines()[0])
    assert header["engine_index"] == 1


def test_vllm_finds_it(logger_class: Any) -> None:
    (found,) = (
        entry
        for entry in entry_points(group="vllm.stat_logger_plugins")
        if entry.name == "fleetsim"
    )
    assert found.load() is logger_class


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fleetsim stats", "fleetsim steps", "not the header of a stats file"),
        ('"format_version": 1', '"format_version": 2', "this fleetsim reads 1"),
        ('"speculative": false', '"speculative": true', "speculative decoding"),
        ('"e2e_s":1.0', '"e2e_s":NaN', r"line 3: finished\.0\.e2e_s"),
        ('"prompt_tokens":300', '"prompt_tokens":-1', "line 2: prompt_tokens"),
        ('"ttft_sum_s":0.75', '"ttft_sum_s":"long"', "line 2: ttft_sum_s"),
    ],
)
def test_damaged_files_are_refused(
    logger_class: Any, recording: Path, old: str, new: str, message: str
) -> None:
    logger = logger_class(fake_vllm.config())
    record_two(logger)
    logger.log()
    text = recording.read_text()
    assert old in text
    recording.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_stats_file(recording)


def test_the_stats_file_lies_beside_the_step_file() -> None:
    assert path_beside(Path("a/steps.jsonl")) == Path("a/steps.stats.jsonl")
