"""The calibrate commands as a user types them."""

import json
import subprocess
from pathlib import Path

import pytest
from unit.backtest import bench_results, runs
from unit.backtest.recordings import write_stats
from unit.calibration import step_files
from unit.calibration.layer_folder import write_layer_folder

from fleetsim.calibration import load_profile
from fleetsim.cli import main


def one_line_error(captured: pytest.CaptureFixture[str]) -> str:
    out, err = captured.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("fleetsim: error: ")]
    assert len(lines) == 1
    assert err.splitlines()[-1] == lines[0]
    return lines[0]


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    return write_layer_folder(tmp_path / "layers")


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.json"
    path.write_text(runs.profile().to_json())
    return str(path)


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(runs.write_requests(tmp_path / "run", *runs.made_run()))


def test_the_group_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate"]) == 0
    out, _ = capsys.readouterr()
    for command in ("from-layers", "from-bench", "check", "fit-host", "record", "fit"):
        assert command in out
        assert main(["calibrate", command, "--help"]) == 0
        assert f"fleetsim calibrate {command}" in capsys.readouterr().out


def test_from_layers_writes_a_profile(
    layers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpu.json"
    assert main(["calibrate", "from-layers", str(layers), "--out", str(out)]) == 0
    assert "median" in capsys.readouterr().out
    assert load_profile(out).name == "gpu"
    assert main(["calibrate", "from-layers", str(layers), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fitted_batches"] > 0


@pytest.mark.parametrize("out", [".", "nowhere/gpu.json"])
def test_a_place_that_cannot_be_written_is_named(
    layers: Path, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "from-layers", str(layers), "--out", out]) == 2
    assert "--out" in one_line_error(capsys)


def test_check_prints_and_keeps(
    own: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["calibrate", "check", "--profile", own, "--run", run]
    assert main(arguments) == 0
    out, _ = capsys.readouterr()
    for word in ("TTFT ms", "TPOT ms", "E2E ms", "p99", "did not wait", "output tokens/s"):
        assert word in out
    folder = tmp_path / "kept"
    assert main([*arguments, "--json", "--out", str(folder)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["requests"]["all"] == 60
    assert max(abs(row["error"]) for row in report["rows"]) < 1e-3
    assert (folder / "check.png").stat().st_size > 10_000
    assert json.loads((folder / "check.json").read_text()) == report
    assert main([*arguments, "--out", str(folder)]) == 2
    assert "is not empty" in one_line_error(capsys)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--run", "no/such"), "no/such"),
        (("--profile", "llama-9"), "is unknown"),
        (("--engine", "max_num_seqs=x"), "give a number"),
    ],
)
def test_check_refuses(
    own: str,
    run: str,
    changed: tuple[str, str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = {"--profile": own, "--run": run} | {changed[0]: changed[1]}
    flat = [word for pair in arguments.items() for word in pair]
    assert main(["calibrate", "check", *flat]) == 2
    assert message in one_line_error(capsys)


def test_fit_host_writes_a_profile(
    own: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "fitted.json"
    arguments = ["--profile", own, "--run", run, "--into", own, "--out", str(out)]
    assert main(["calibrate", "fit-host", *arguments]) == 0
    assert "host work x " in capsys.readouterr().out
    work = load_profile(out).host_work_for("async").work
    assert work.residue_s == pytest.approx(runs.HOST.residue_s, rel=1e-2)


def test_check_reads_a_recording(
    own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = step_files.write_steps(tmp_path / "steps.jsonl", step_files.made_steps(300))
    arguments = ["calibrate", "check", "--profile", own, "--run", str(steps), "--json"]
    assert main(arguments) == 2
    assert "no steps.stats.jsonl with the requests" in one_line_error(capsys)
    write_stats(tmp_path / "steps.stats.jsonl", *runs.made_run())
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["run"] == "steps.stats.jsonl"
    assert max(abs(row["error"]) for row in report["rows"]) < 1e-3


def from_bench(*arguments: str) -> list[str]:
    engine = [word for change in bench_results.SYNC for word in ("--engine", change)]
    return ["calibrate", "from-bench", *arguments, "--profile", bench_results.BASE, *engine]


def test_from_bench_writes_a_profile_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = bench_results.write_rates(tmp_path / "runs", bench_results.true_profile())
    out, plot = tmp_path / "mine.json", tmp_path / "mine.png"
    arguments = from_bench(*map(str, paths), "--out", str(out))
    assert main([*arguments, "--plot", str(plot)]) == 0
    printed = capsys.readouterr().out
    for words in ("host work of a step", "API server, of a request", "r8.json 8/s kept out"):
        assert words in printed
    assert "validation: r8.json (8/s), kept from the fit" in printed
    profile = load_profile(out)
    assert profile.name == "mine"
    assert "kept from the fit: mean TTFT" in profile.provenance.validation_runs
    assert plot.stat().st_size > 10_000
    assert main([*from_bench(str(paths[1]), "--out", str(out)), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {row["metric"] for row in report["rows"]} == {"TTFT", "TPOT", "ITL"}
    assert set(report["fitted"]) == {"host", "api"}
    assert not any(row["held_out"] for row in report["rows"])


def test_from_bench_says_what_one_run_cannot_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = bench_results.write_rates(
        tmp_path / "runs", bench_results.true_profile(), rates=(8.0,)
    )
    assert main(from_bench(str(path), "--out", str(tmp_path / "mine.json"))) == 0
    out, err = capsys.readouterr()
    assert "host work: " in out
    assert "validation: none: 1 bench results" in out
    assert "one batch size: host work is one number" in err


def test_from_bench_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = bench_results.made(8.0, bench_results.true_profile())
    path, out = tmp_path / "r.json", tmp_path / "mine.json"
    for change, message in (
        ({"ttfts": None}, "ttfts: this list is missing"),
        ({"model_id": "meta-llama/Llama-3.1-70B"}, "was measured with meta-llama/Llama-3.1-70B"),
        ({"gpu": "NVIDIA A100"}, "was measured on NVIDIA A100"),
        ({"duration": result["duration"] * 1e3}, "the file's own total says"),
    ):
        bench_results.write(path, {**result, **change})
        assert main(from_bench(str(path), "--out", str(out))) == 2
        assert message in one_line_error(capsys)
    path.write_text(json.dumps(result)[:-500])
    assert main(from_bench(str(path), "--out", str(out))) == 2
    assert "is cut off or damaged" in one_line_error(capsys)
    assert not out.exists()


def test_record_prints_a_script_that_a_shell_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "record"]) == 0
    out, _ = capsys.readouterr()
    assert 'FLEETSIM_STEPS_FILE="steps.jsonl"' in out
    assert 'FLEETSIM_STATS_FILE="steps.stats.jsonl"' in out
    assert "vllm_recorder.AsyncRecordingScheduler" in out
    script = tmp_path / "record.sh"
    wanted = ["calibrate", "record", "org/model", "--sync", "--out", str(script)]
    assert main(wanted) == 0
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
    assert "vllm_recorder.RecordingScheduler" in script.read_text()
    capsys.readouterr()
    assert main(wanted) == 2
    assert "exists already" in one_line_error(capsys)
    assert main(["calibrate", "record", "--steps", 'a"b']) == 2
    assert "--steps" in one_line_error(capsys)


def test_fit_writes_a_profile_and_its_diagnostics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = step_files.write_steps(tmp_path / "steps.jsonl", step_files.made_steps())
    out, plot = tmp_path / "mine.json", tmp_path / "fit.png"
    arguments = ["calibrate", "fit", str(steps), "--out", str(out)]
    assert main([*arguments, "--plot", str(plot)]) == 0
    assert "mixed" in capsys.readouterr().out
    assert load_profile(out).name == "mine"
    assert plot.stat().st_size > 10_000
    steps.write_text(steps.read_text()[:-9])
    assert main(arguments) == 2
    assert "cut off" in one_line_error(capsys)
