"""`fleetsim calibrate validate` as a user types it, and the page that it writes."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from fleetsim.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "validation.md"

needs_tables = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core is not installed (extra: aic)",
)


def error_line(captured: pytest.CaptureFixture[str]) -> str:
    out, err = captured.readouterr()
    assert out == ""
    (line,) = (line for line in err.splitlines() if line.startswith("fleetsim: error: "))
    return line


def test_without_the_package_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    assert main(["calibrate", "validate"]) == 2
    assert "aiconfigurator-core is not installed" in error_line(capsys)


def test_wrong_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "validate", "--workers", "0"]) == 2
    assert "--workers: must be at least 1, got 0" in error_line(capsys)
    (tmp_path / "there").write_text("")
    assert main(["calibrate", "validate", "--out", str(tmp_path)]) == 2
    assert "is not empty" in error_line(capsys)
    assert main(["calibrate", "validate", "--page", str(tmp_path / "none.md")]) == 2
    assert "--page" in error_line(capsys)


def test_a_page_belongs_to_all_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["calibrate", "validate", "--model", "llama", "--page", str(PAGE)]
    assert main(arguments) == 2
    assert "--page: give it without --model" in error_line(capsys)


@needs_tables
def test_a_model_without_rows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "validate", "--model", "mixtral"]) == 2
    assert "--model mixtral: no such rows; there are " in error_line(capsys)


def table(text: str, name: str) -> list[list[str]]:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", text, re.DOTALL)
    assert found is not None
    return [line.strip("| ").split(" | ") for line in found[1].splitlines()[2:]]


def test_the_page_has_every_row() -> None:
    page = PAGE.read_text()
    groups, rows, left_out = (table(page, name) for name in ("groups", "rows", "left out"))
    assert sum(int(group[2]) for group in groups) == len(rows)
    assert len(rows) + sum(int(line[0]) for line in left_out) == 573
    assert page.count(f"simulates {len(rows)} end-to-end runs") == 1


@pytest.mark.slow
@needs_tables
def test_the_page_shows_what_the_command_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "v"
    assert main(["calibrate", "validate", "--model", "235b", "--json", "--out", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "validation.json").read_text())
    runs = pd.read_csv(out / "validation.csv").set_index("id")
    assert len(runs) == len(printed["runs"]) == 26
    assert (out / "validation.png").stat().st_size > 10_000
    rows = [row for row in table(PAGE.read_text(), "rows") if "235B" in row[0]]
    found = [
        [f"{run['tpot_simulated_s'] * 1e3:,.2f}", f"{run['ttft_simulated_s'] * 1e3:,.0f}"]
        for run in printed["runs"]
    ]
    assert [[row[7], row[10]] for row in rows] == found, (
        "if this is right: fleetsim calibrate validate --page docs/validation.md"
    )


@pytest.mark.slow
@needs_tables
def test_the_text_has_all_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "validate", "--model", "MiniMax"]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^MiniMax-M2.5 +4 H200", out, re.MULTILINE)) == 15
    assert (
        "not simulated: 36 rows: not covered: MiniMax-M2.5: MiniMaxAI/MiniMax-M2.5: its experts"
        in out
    )
    assert re.search(r"^MiniMax-M2.5 +held out +15 ", out, re.MULTILINE)
