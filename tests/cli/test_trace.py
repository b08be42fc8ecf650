"""The trace commands as a user types them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleetsim.cli import main
from fleetsim.traces import load_sample, load_trace

ROWS = "arrival_s,prompt_tokens,output_tokens,tenant\n0,10,2,a\n1,20,3,b\n3,30,4,a\n"


def one_line_error(captured: pytest.CaptureFixture[str]) -> str:
    out, err = captured.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("fleetsim: error: ")]
    assert len(lines) == 1
    assert err.splitlines()[-1] == lines[0]
    return lines[0]


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.csv"
    path.write_text(ROWS)
    return str(path)


def test_the_group_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace"]) == 0
    out, _ = capsys.readouterr()
    for command in ("stats", "plot", "convert", "fetch"):
        assert command in out
        assert main(["trace", command, "--help"]) == 0
        assert f"fleetsim trace {command}" in capsys.readouterr().out


def test_stats_side_by_side(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "stats", "sample", own]) == 0
    out, _ = capsys.readouterr()
    for words in ("IDC at 60 s", "6,377", "no limit", "rows kept", "licence", "unknown"):
        assert words in out


def test_stats_as_json(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["trace", "stats", "sample", own, "--json", "--cache-blocks", "500"]
    assert main(arguments) == 0
    first, second = json.loads(capsys.readouterr().out)["traces"]
    assert first["content_hash"] == load_sample().content_hash()
    assert [point["cache_blocks"] for point in first["ideal_prefix_hits"]] == [None, 500]
    assert second["requests"] == 3
    assert second["ideal_prefix_hits"] is None
    assert second["dispersion"]["60"] is None  # no two minutes
    assert second["metadata"]["rows_read"] == 3


def test_warnings_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "late.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n5,1,1\n0,1,1\n")
    assert main(["trace", "stats", str(path)]) == 0
    assert "arrived before the row above them" in capsys.readouterr().err


def test_plot_writes_a_png(own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for trace in ("sample", own):
        out = tmp_path / "t.png"
        assert main(["trace", "plot", trace, "--out", str(out)]) == 0
        assert out.read_bytes().startswith(b"\x89PNG")
    assert main(["trace", "plot", own, "--out", str(tmp_path / "t.jpg")]) == 2
    assert "must end in .png" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["parquet", "mooncake", "timed_trace", "blis"])
def test_convert(own: str, to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.file"
    assert main(["trace", "convert", own, "--to", to, "--out", str(out)]) == 0
    said, err = capsys.readouterr()
    assert f"trace in {out}" in err
    assert ("lost: tenant: " in err) == (to in ("mooncake", "timed_trace"))
    begins = {"parquet": "", "blis": "blis replay "}.get(to, "PYTHONHASHSEED=0 vllm bench serve ")
    assert said.startswith(begins)
    if to != "blis":
        assert load_trace(out).output_tokens.tolist() == [2, 3, 4]
    assert main(["trace", "convert", own, "--to", to, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["paths"][0] == str(out)


def test_strict_is_an_error(own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m.jsonl"
    assert main(["trace", "convert", own, "--to", "mooncake", "--out", str(out), "--strict"]) == 2
    assert "would lose tenant" in one_line_error(capsys)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stats", "nowhere.csv"], "no such file"),
        (["stats", "sample", "--cache-blocks", "0"], "cache-blocks"),
        (["plot", "sample", "--out", "nowhere/t.png"], "does not exist"),
        (["convert", "sample", "--to", "csv", "--out", "x.csv"], "known are parquet"),
        (["convert", "sample", "--to", "blis", "--out", "."], "is a folder"),
        (["convert", "sample", "--to", "blis", "--out", "x.csv.gz"], "leave .gz off"),
        (["convert", "sample", "--to", "blis", "--out", "x.yaml"], "name the CSV"),
        (["fetch", "nothing"], "known are azure-2023-code"),
        (["fetch"], "name a trace"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trace", *arguments]) == 2
    assert words in one_line_error(capsys)
    assert list(tmp_path.iterdir()) == []


def test_fetch_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "fetch", "--list"]) == 0
    assert "mooncake-conversation  (3,030 kB, Apache-2.0)" in capsys.readouterr().out
    assert main(["trace", "fetch", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["traces"]
    assert all(len(file["sha256"]) == 64 for one in listed for file in one["files"])


def test_fetch_from_a_folder(
    shared_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETSIM_TRACES", str(shared_dir / "traces"))
    assert main(["trace", "fetch", "azure-2023-code"]) == 0
    out, err = capsys.readouterr()
    assert len(load_trace(out.strip())) == 8819
    assert "licence CC-BY-4.0; Patel et al." in err


def test_as_a_command_of_its_own(own: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fleetsim.cli", "trace"]
    done = subprocess.run([*command, "stats", own, "--json"], capture_output=True, check=True)
    assert json.loads(done.stdout)["traces"][0]["requests"] == 3
    missing = subprocess.run(
        [*command, "stats", str(tmp_path / "none")], capture_output=True, text=True, check=False
    )
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "Traceback" not in missing.stderr
