"""`fleetsim run` for real, as a user types it."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from fleetsim.cli import main

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
SMALL = ["--set", "workload.head=40"]
LONG = [
    "--set",
    "workload.synthetic={requests: 1000000, prompt_tokens: 500, output_tokens: 100, "
    "arrivals: {rate_per_s: 40}}",
]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fleetsim.cli", "run", *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_command_shows_a_fleet_and_leaves_a_result(tmp_path: Path) -> None:
    done = run(tmp_path, *SMALL)
    assert done.returncode == 0, done.stderr
    for word in ("TTFT", "TPOT", "goodput", "cost", "SLO"):
        assert word in done.stdout
    assert done.stderr == "fleetsim: result in runs/quickstart-0\n"
    folder = tmp_path / "runs" / "quickstart-0"
    assert json.loads((folder / "status.json").read_text())["status"] == "complete"
    for name in ("latency.png", "timeline.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert yaml.safe_load((folder / "scenario.resolved.yaml").read_text())["workload"]["head"] == 40
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_json_is_the_summary_and_nothing_else(tmp_path: Path) -> None:
    done = run(tmp_path, *SMALL, "--json", "--no-plots", "--progress", "--out", "r")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary == json.loads((tmp_path / "r" / "summary.json").read_text())
    assert not list((tmp_path / "r").glob("*.png"))


def test_the_resolved_scenario_gives_the_same_result(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    rows = [f"{i / 7},{100 + 37 * i % 900},{5 + i % 60}" for i in range(60)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    first = run(tmp_path, "--trace", "t.csv", "--seed", "5", "--json", "--no-plots", "--out", "a")
    assert first.returncode == 0, first.stderr
    resolved = tmp_path / "again.yaml"
    resolved.write_text((tmp_path / "a" / "scenario.resolved.yaml").read_text())
    second = run(tmp_path, "again.yaml", "--json", "--no-plots", "--out", "b")
    assert second.returncode == 0, second.stderr
    assert second.stdout == first.stdout
    assert "/" not in yaml.safe_load(resolved.read_text())["workload"]["trace"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "t.csv"),
        ("", "t.csv"),
        ("arrival_s,prompt_tokens,output_tokens\n0,ten,5\n", "ten"),
        ("arrival_s,prompt,output_tokens\n0,10,5\n", "prompt_tokens"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,10,5\n", "-1"),
    ],
)
def test_a_bad_trace_leaves_nothing_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "t.csv").write_text(content)
    assert main(["run", "--trace", "t.csv", "--out", "r"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fleetsim: error: ")
    assert expected in err
    assert err.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_a_result_folder_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "precious").write_text("data")
    done = run(tmp_path, *SMALL, "--out", "r")
    assert (done.returncode, done.stdout) == (2, "")
    assert "r: is not empty; give --out a new folder" in done.stderr
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["precious"]


def test_ctrl_c_leaves_a_partial_result_that_says_so(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(*LONG, "--no-plots", "--out", "r"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(600):
            if (tmp_path / "r" / "requests").exists():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-2:] == [
        "fleetsim: this result is partial, and says so",
        "fleetsim: interrupted",
    ]
    assert "interrupted" in out
    assert json.loads((tmp_path / "r" / "status.json").read_text())["status"] == "interrupted"


def test_a_file_that_cannot_be_written_is_one_line_and_no_whole_result(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk."""
    done = subprocess.run(
        command(*SMALL, "--out", "r"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fleetsim: error: r/")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "r" / "status.json").exists()
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


@pytest.mark.parametrize("name", ["chapter-sweep", "two-models"])
def test_shipped_scenarios_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(ROOT / "scenarios" / f"{name}.yaml")
    assert main(["run", path, *SMALL, "--json", "--no-plots"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert (tmp_path / "runs" / f"{name}-0" / "status.json").exists()


def test_the_azure_trace_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shared_dir: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = str(shared_dir / "traces" / "azure_2023" / "AzureLLMInferenceTrace_conv.csv")
    path = str(ROOT / "scenarios" / "azure-conversation.yaml")
    small = ["--set", "workload.head=300", "--set", "measurement={}"]
    assert main(["run", path, "--trace", trace, *small, "--json", "--no-plots"]) == 0
    assert json.loads(capsys.readouterr().out)
