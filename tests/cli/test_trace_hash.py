"""`fleetsim trace hash` as a user types it."""

import json
from pathlib import Path

import pytest
from unit.traces.own_logs import exchange, lines, spend

from fleetsim.cli import main
from fleetsim.traces import load_trace


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text(lines(*(exchange("secretword " * 40, f"a{n}", "b") for n in range(3))))
    return path


def error_of(captured: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["trace", "hash", *map(str, arguments)]) == 2
    out, err = captured.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("fleetsim: error: ")
    return line.removeprefix("fleetsim: error: ")


def test_the_group_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace"]) == 0
    assert "hash" in capsys.readouterr().out
    assert main(["trace", "hash", "--help"]) == 0
    assert "fleetsim trace hash requests.jsonl" in capsys.readouterr().out


def test_the_same_salt_gives_the_same_file(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    salt = tmp_path / "salt"
    salt.write_bytes(bytes(range(32)))
    outs = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    for out in outs:
        given = ["--salt-file", str(salt), "--chars-per-token", "4"]
        assert main(["trace", "hash", str(log), "--out", str(out), *given]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert b"secretword" not in outs[0].read_bytes()
    trace = load_trace(outs[0])
    assert trace.metadata.block_tokens == 16
    assert not any("random salt" in text for text in trace.metadata.warnings)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"3 requests in {outs[0]}" in err


def test_a_random_salt_is_another_each_time_and_said(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = [tmp_path / name for name in ("a.csv", "b.csv")]
    seen = []
    for out in outs:
        given = ["--chars-per-token", "4", "--block-tokens", "64", "--json", "--hash-labels"]
        assert main(["trace", "hash", str(log), "--out", str(out), *given]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["requests"] == told["rows_read"] == 3
        assert any("a random salt that was not kept" in text for text in told["warnings"])
        metadata = json.loads((tmp_path / f"{out.name}.meta.json").read_text())
        assert metadata["warnings"] == told["warnings"]
        assert metadata["block_tokens"] == 64
        trace = load_trace(out)
        assert trace.block_ids is not None
        assert trace.model is not None
        assert trace.model.names != ("llama",)
        seen.append(set(trace.block_ids.tolist()))
    assert seen[0].isdisjoint(seen[1])


def test_labels_of_a_log_without_prompts(tmp_path: Path) -> None:
    log = tmp_path / "spend.jsonl"
    log.write_text(lines(spend(), spend(request_id="2", status="failure")))
    out = tmp_path / "out.parquet"
    assert main(["trace", "hash", str(log), "--out", str(out), "--hash-labels"]) == 0
    trace = load_trace(out)
    assert b"team-a" not in out.read_bytes()
    assert trace.metadata.rows_dropped == {"failed": 1}


def test_what_is_refused(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.parquet"
    assert error_of(capsys, log, "--out", out).endswith(
        "row 1: its prompt is text; give --tokenizer NAME, or --chars-per-token 4 to approximate"
    )
    assert "must end in .parquet or .csv" in error_of(capsys, log, "--out", tmp_path / "out")
    both = ("--tokenizer", "x", "--chars-per-token", "4")
    assert "give one of them" in error_of(capsys, log, "--out", out, *both)
    rate = ("--chars-per-token", "0")
    assert "must lie between 0.1 and 100" in error_of(capsys, log, "--out", out, *rate)
    size = ("--block-tokens", "0")
    assert "must lie between 1 and 65536" in error_of(capsys, log, "--out", out, *size)
    salt = ("--salt-file", tmp_path / "none")
    assert "cannot be read" in error_of(capsys, log, "--out", out, *salt)
    plain = tmp_path / "t.csv"
    plain.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    assert "add --hash-labels" in error_of(capsys, plain, "--out", out)
    assert "has no prompts" in error_of(capsys, plain, "--out", out, "--chars-per-token", "4")
    assert "is an input" in error_of(capsys, plain, "--out", plain)
    far = tmp_path / "far" / "out.csv"
    assert "does not exist" in error_of(capsys, plain, "--out", far)
    assert not out.exists()


def test_a_tokenizer_without_its_package_is_one_line(
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    line = error_of(capsys, log, "--out", tmp_path / "out.csv", "--tokenizer", "some/model")
    assert "pip install 'fleetsim[tokenizer]'" in line
