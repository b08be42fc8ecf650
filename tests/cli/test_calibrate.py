"""The calibrate commands as a user types them."""

import json
import subprocess
from pathlib import Path

import pytest
from unit.backtest import runs
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
    for command in ("from-layers", "check", "fit-host", "record", "fit"):
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


def test_record_prints_a_script_that_a_shell_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "record"]) == 0
    out, _ = capsys.readouterr()
    assert 'FLEETSIM_STEPS_FILE="steps.jsonl"' in out
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
