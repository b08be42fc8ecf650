"""The commands that do not simulate, and how every command fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fleetsim.cli import main

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "scenarios" / "quickstart.yaml")


def fleetsim(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", "fleetsim.cli", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def one_line_error(captured: pytest.CaptureFixture[str]) -> str:
    out, err = captured.readouterr()
    assert out == ""
    assert err.startswith("fleetsim: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("fleetsim: error: ").rstrip("\n")


def test_help_is_worth_reading_and_cheap() -> None:
    code = (
        "import sys; from fleetsim.cli import main; main(['--help']); "
        "heavy = {'pandas', 'pyarrow', 'matplotlib', 'pydantic', 'numpy'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for word in ("Examples:", "run", "validate", "policies", "init", "schema", "Exit codes"):
        assert word in done.stdout


@pytest.mark.parametrize("command", ["run", "validate", "policies", "init", "schema"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert "Example" in out
    assert f"fleetsim {command}" in out or "fleetsim run" in out
    assert err == ""


def test_no_arguments_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Examples:" in capsys.readouterr().out


def test_version() -> None:
    done = fleetsim("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fleetsim 0.")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rum"], "No such command 'rum'"),
        (["run", "--sed", "1"], "--sed"),
        (["run", "--seed", "abc"], "--seed"),
        (["run", "a.yaml", "b.yaml"], "b.yaml"),
        (["validate"], "Missing argument"),
        (["run", "nothing.yaml"], "nothing.yaml: there is no such file"),
        (["run", str(ROOT)], "is a folder; give a scenario file"),
        (["run", "--set", "pools.chat.replicas"], "is not a change; write it as a.b=value"),
        (["run", "--set", "pools.chat.replicas=0"], "0 is out of range; give 1 or more"),
        (["run", "--set", "router.routing.policy=fifo"], "no routing policy 'fifo'; there are"),
        (["run", "--set", "pools.chat.profile=h100"], "profile 'h100' is unknown"),
        (["run", "--seed", "-1"], "--seed -1: seed: -1 is out of range"),
        (["run", "--out", __file__], "is a file; give --out a new folder"),
        (["run", "--out", str(ROOT)], "is not empty; give --out a new folder"),
        (["init", QUICKSTART], "exists already; name a new file"),
        (["init", "no/such/folder/x.yaml"], "no/such/folder/x.yaml: No such file or directory"),
        (["init", str(ROOT)], "exists already"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert expected in one_line_error(capsys)


def test_bad_input_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_bytes(b"\x89PNG\x00\xff")
    done = fleetsim("run", "fleet.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "fleetsim: error: fleet.yaml: is not text (byte 0); a scenario is a UTF-8 YAML file\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.yaml"]


def test_validate_prints_the_scenario_with_its_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["validate", QUICKSTART, "--set", "pools.chat.replicas=8"]) == 0
    out, err = capsys.readouterr()
    assert yaml.safe_load(out)["pools"]["chat"]["replicas"] == 8
    assert yaml.safe_load(out)["pools"]["chat"]["engine"]["max_num_seqs"] == 1024
    assert err == f"fleetsim: {QUICKSTART} is valid\n"


def test_validate_lists_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--set", "seed=-1", "--set", "gateway.workers=0"]
    assert main(["validate", QUICKSTART, *wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(": ")[2] for line in err.splitlines()] == [
        "--set seed=-1",
        "--set gateway.workers=0",
    ]


def test_validate_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", QUICKSTART, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is True
    assert report["scenario"]["seed"] == 0
    assert main(["validate", QUICKSTART, "--json", "--set", "seed=x"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is False
    assert report["problems"] == ["--set seed=x: seed: 'x' is not a whole number"]


def test_validate_reads_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,0,5\n")
    assert main(["validate", QUICKSTART, "--trace", str(trace)]) == 2
    assert "t.csv" in one_line_error(capsys)
    assert main(["validate", QUICKSTART, "--trace", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in one_line_error(capsys)
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,4,5\n")
    assert main(["validate", QUICKSTART, "--trace", str(trace)]) == 0


def test_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies"]) == 0
    text = capsys.readouterr().out
    for line in ("routing\n", "admission\n", "limits\n", "  power_of_two: ", "      d: int = 2"):
        assert line in text
    assert main(["policies", "--json"]) == 0
    policies = json.loads(capsys.readouterr().out)["policies"]
    two = next(policy for policy in policies if policy["name"] == "power_of_two")
    assert two["params"][0]["name"] == "d"


def test_init_writes_a_scenario_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my-fleet.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["validate", "my-fleet.yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["name"] == "my-fleet"
    before = Path("my-fleet.yaml").read_bytes()
    assert main(["init", "my-fleet.yaml"]) == 2
    assert Path("my-fleet.yaml").read_bytes() == before
    assert main(["init"]) == 0
    assert main(["validate", "fleet.yaml"]) == 0
    assert main(["init", "my fleet.yaml"]) == 0
    assert main(["validate", "my fleet.yaml"]) == 0


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"]["pools"]


def test_a_reader_who_has_enough_is_not_bothered() -> None:
    command = f"{sys.executable} -m fleetsim.cli schema | true"
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
