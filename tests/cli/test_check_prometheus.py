"""`fleetsim calibrate check --prometheus` as a user types it."""

import json
from pathlib import Path

import pytest
from unit.backtest import fleets

from fleetsim.cli import main
from fleetsim.sim.backtest.prometheus_dump import read_dump


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fleet")
    fleets.write_scenario(path)
    fleets.write_trace(path / "trace.csv", requests=600)
    fleets.write_openmetrics(path / "tuesday.om", fleets.export(path))
    return path


def arguments(folder: Path, *more: str) -> list[str]:
    given = ["--prometheus", str(folder / "tuesday.om"), "--scenario", str(folder / "fleet.yaml")]
    return ["calibrate", "check", *given, "--trace-start", fleets.START, *more]


def one_line_error(captured: pytest.CaptureFixture[str]) -> str:
    out, err = captured.readouterr()
    assert out == ""
    assert err.startswith("fleetsim: error: ")
    assert len(err.splitlines()) == 1
    return err


def test_it_prints_and_keeps(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(folder)) == 0
    out, _ = capsys.readouterr()
    for word in ("the same load?", "replicas", "TTFT", "ITL", "p99", "KV usage", "hit rate"):
        assert word in out
    assert "TTFT: trust: mean within the tolerance" in out
    kept = tmp_path / "kept"
    assert main(arguments(folder, "--json", "--out", str(kept))) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["comparable"] is True
    assert {metric["verdict"] for metric in report["metrics"]} == {"trust"}
    assert json.loads((kept / "check.json").read_text()) == report
    assert (kept / "check.png").stat().st_size > 10_000
    # what was simulated is what was exported, so it is the same file, and reads like one
    assert (kept / "simulated.om").read_bytes() == (folder / "tuesday.om").read_bytes()
    assert read_dump(kept / "simulated.om").models() == [fleets.MODEL]
    assert main(arguments(folder, "--out", str(kept))) == 2
    assert "is not empty" in one_line_error(capsys)


def test_a_difference_is_said_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(folder, "--set", "pools.chat.replicas=2")) == 0
    out, _ = capsys.readouterr()
    assert out.index("no number below can be trusted") < out.index("TTFT")
    assert "ITL: do not trust: not comparable: replicas differ" in out


def test_the_same_input_gives_the_same_bytes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        assert main(arguments(folder, "--out", str(tmp_path / name))) == 0
    for file in ("check.json", "simulated.om", "check.png"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    out, _ = capsys.readouterr()
    assert out[: len(out) // 2] == out[len(out) // 2 :]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--trace-start", "2025-11-25T16:00:00Z"), "do not overlap"),
        (("--trace-start", "2025-11-24T16:00:00"), "has no time zone"),
        (("--trace", "no.csv"), "no.csv"),
        (("--model", "other"), "--model other: is not in it"),
        (("--tolerance", "10"), "--tolerance 10: must be between 0 and 1"),
        (("--set", "workload.time_scale=2"), "time_scale 2"),
        (("--run", "run"), "--run and --prometheus do not go together"),
        (("--engine", "max_num_seqs=8"), "--engine and --prometheus do not go together"),
    ],
)
def test_it_refuses(
    folder: Path, more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(folder, *more)) == 2
    assert message in one_line_error(capsys)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "give --profile and --run, or --prometheus and --scenario"),
        (("--profile", "x"), "give --profile and --run"),
        (("--prometheus", "x"), "--prometheus and --scenario are both needed"),
        (("--scenario", "x"), "--prometheus and --scenario are both needed"),
    ],
)
def test_half_of_it_is_refused(
    given: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "check", *given]) == 2
    assert message in one_line_error(capsys)


def test_the_trace_start_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without = arguments(folder)[:-2]
    assert main(without) == 2
    assert "trace.csv: does not say when its first request arrived" in one_line_error(capsys)
