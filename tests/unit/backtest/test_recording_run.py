"""A recording as a measured run, and runs that are not of the profile's GPU, model or engine."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.backtest import runs
from unit.backtest.recordings import STATS_HEADER, write_stats
from unit.calibration.step_files import made_steps, write_steps

from fleetsim.calibration import Profile, load_profile
from fleetsim.sim.backtest import compare, read_run, replay, replay_settings
from fleetsim.sim.backtest.measured_run import Origin
from fleetsim.sim.backtest.origin import origin_remarks
from fleetsim.traces.errors import InputError

H100 = "llama-3.1-8b-bf16-tp1-h100"


def test_a_recording_of_our_own_engine_is_replayed_without_error(tmp_path: Path) -> None:
    path = write_stats(tmp_path / "steps.stats.jsonl", *runs.made_run(rate=20.0))
    run = read_run(path)
    settings = replay_settings(run, runs.profile(), {})
    assert settings.engine == runs.SETTINGS.__class__(
        num_gpu_blocks=2000, max_num_seqs=16, max_num_batched_tokens=512, max_model_len=8192
    )
    comparison = compare(run, replay(run, runs.profile(), settings.engine))
    assert max(abs(row.error) for row in comparison.rows) < 1e-4
    assert comparison.groups["waited"] > 0


def test_a_step_file_leads_to_the_requests_beside_it(tmp_path: Path) -> None:
    steps = write_steps(tmp_path / "steps.jsonl", made_steps())
    with pytest.raises(InputError, match=r"no steps\.stats\.jsonl with the requests lies beside"):
        read_run(steps)
    write_stats(tmp_path / "steps.stats.jsonl", *runs.made_run())
    assert len(read_run(steps)) == 60


def changed(path: Path, change: Any) -> Path:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_requests_that_did_not_end_well_are_counted_and_left_out(tmp_path: Path) -> None:
    def abort(lines: list[dict[str, Any]]) -> None:
        lines[3]["finished"][0]["finish_reason"] = "abort"

    run = read_run(changed(write_stats(tmp_path / "s.jsonl", *runs.made_run()), abort))
    assert (len(run), run.failed) == (59, 1)


def test_what_a_replay_does_not_know_is_remarked(tmp_path: Path) -> None:
    def spoil(lines: list[dict[str, Any]]) -> None:
        for line in lines[1:]:
            line["finished"][0]["cached_tokens"] = line["finished"][0]["prompt_tokens"] // 2
            line["generation_tokens"] *= 2

    run = read_run(changed(write_stats(tmp_path / "s.jsonl", *runs.made_run()), spoil))
    cached, unfinished = replay_settings(run, runs.profile(), {}).remarks[:2]
    assert "50% of the prompt tokens came from the prefix cache" in cached
    assert "50% of the tokens were of requests that had not ended" in unfinished


def negative(lines: list[dict[str, Any]]) -> None:
    lines[3]["finished"][0]["queued_s"] = -1.0


def too_long(lines: list[dict[str, Any]]) -> None:
    lines[3]["finished"][0]["decode_s"] = 1e6


def nothing_ended(lines: list[dict[str, Any]]) -> None:
    del lines[1:]


def one_of_several(lines: list[dict[str, Any]]) -> None:
    lines[0]["api_processes"] = 2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (negative, "queued_s is -1, below 0"),
        (too_long, "ttft_s is -"),
        (nothing_ended, "no request ended"),
        (one_of_several, "one of 2 API server processes"),
    ],
)
def test_recordings_that_are_no_run_are_refused(tmp_path: Path, spoil: Any, message: str) -> None:
    path = changed(write_stats(tmp_path / "s.jsonl", *runs.made_run()), spoil)
    with pytest.raises(InputError, match=message):
        read_run(path)


def remarks(profile: Profile, **origin: Any) -> list[str]:
    asked, _ = runs.made_run(requests=2)
    return origin_remarks(runs.with_origin(asked, Origin(**origin)), profile)


@pytest.mark.parametrize(
    "gpu", ["NVIDIA H100 80GB HBM3", "H100", "NVIDIA H100 SXM 80GB", "some GPU"]
)
def test_the_same_gpu_by_any_name(gpu: str) -> None:
    assert remarks(load_profile(H100), gpu=gpu) == []


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ({"gpu": "NVIDIA H200"}, "measured on NVIDIA H200, but profile"),
        ({"gpu": "NVIDIA GeForce RTX 4090"}, "measured on NVIDIA GeForce RTX 4090"),
        ({"gpu": "NVIDIA A100-SXM4-80GB"}, "measured on NVIDIA A100"),
        ({"gpu": "cpu"}, "measured on cpu"),
        ({"model": "meta-llama/Llama-3.1-70B"}, "measured with meta-llama/Llama-3.1-70B"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size 2"),
    ],
)
def test_another_gpu_or_model_is_refused(origin: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        remarks(load_profile(H100), **origin)


def test_another_engine_version_or_name_is_remarked() -> None:
    profile = load_profile(H100)
    assert remarks(profile, model="meta-llama/Llama-3.1-8B") == []
    (other,) = remarks(profile, model="mistralai/Ministral-8B")
    assert "the run calls its model 'mistralai/Ministral-8B'" in other
    host, steps = remarks(profile, engine_version="0.32.0")
    assert "host work are of vLLM 0.10, 0.12" in host
    assert "step costs are of vLLM 0.24" in steps
    (host,) = remarks(profile, engine_version="0.24.1")
    assert "host work" in host


def test_check_refuses_a_recording_of_another_gpu(tmp_path: Path) -> None:
    header = STATS_HEADER | {"gpu": "NVIDIA H200"}
    run = read_run(write_stats(tmp_path / "s.jsonl", *runs.made_run(), header))
    with pytest.raises(InputError, match="was measured on NVIDIA H200"):
        replay_settings(run, load_profile(H100), {})
