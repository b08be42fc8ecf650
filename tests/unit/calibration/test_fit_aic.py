"""The script that makes the shipped profiles."""

import importlib.util
import sys
from pathlib import Path

import pytest

import fleetsim.calibration
from fleetsim.calibration import load_profile
from fleetsim.calibration.fit_aic import main, make_profile, make_profiles
from fleetsim.calibration.served import NAMES
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.traces.errors import InputError

SHIPPED = Path(fleetsim.calibration.__file__).parent / "profiles"

needs_tables = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core is not installed (extra: aic)",
)


REFITTED = (
    "llama-3.1-8b-bf16-tp1-h100",
    "llama-3.1-70b-fp8-tp4-h200",
    "qwen3-14b-fp8-tp2-h100",
    "qwen3-235b-a22b-fp8-tp4-h200",
    "mixtral-8x7b-bf16-tp2-h100",
    "gpt-oss-20b-mxfp4-tp1-h200",
    "deepseek-v3-fp8-tp8-h200",
)
"""One of each kind: all of them take minutes."""


@pytest.mark.slow
@needs_tables
@pytest.mark.parametrize("name", REFITTED)
def test_a_shipped_profile_is_written_again_byte_for_byte(name, tmp_path, capsys):
    assert main(["--profile", name, "--out", str(tmp_path)]) == 0
    assert (tmp_path / f"{name}.json").read_bytes() == (SHIPPED / f"{name}.json").read_bytes()
    assert f"| {name} | " in capsys.readouterr().out


@pytest.mark.slow
@needs_tables
def test_two_processes_write_the_same_in_the_same_order():
    alone = list(make_profiles(REFITTED[:2], jobs=1))
    assert list(make_profiles(REFITTED[:2], jobs=2)) == alone


@pytest.mark.slow
@needs_tables
def test_without_the_unaligned_rows_fp8_steps_cost_less_just_above_a_multiple():
    raw = load_profile("qwen3-32b-fp8-tp2-h200")
    aligned = make_profile(raw.name, "aligned")
    assert any("as if every batch were padded" in r for r in aligned.provenance.remarks)
    assert not any("fitted as measured" in r for r in aligned.provenance.remarks)
    ratio = [
        StepCost(aligned.step_cost).step_s(0, 0, c, 1, c * c / 2, 0.0)
        / StepCost(raw.step_cost).step_s(0, 0, c, 1, c * c / 2, 0.0)
        for c in (300, 16_000)
    ]
    assert ratio[0] < 0.9
    assert 0.95 < ratio[1] < 1.02


@pytest.mark.slow
@needs_tables
def test_bf16_has_no_such_rows():
    assert make_profile(REFITTED[0], "aligned") == load_profile(REFITTED[0])


def test_without_the_package_the_extra_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    assert main(["--profile", NAMES[0], "--out", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "aiconfigurator-core is not installed" in message
    assert "pip install 'fleetsim[aic]'" in message
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_is_none_is_refused(tmp_path, capsys):
    assert main(["--profile", NAMES[0], "--out", str(tmp_path / "absent")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_number_of_jobs_that_is_none_is_refused(tmp_path, capsys):
    assert main(["--profile", NAMES[0], "--out", str(tmp_path), "--jobs", "0"]) == 2
    assert "--jobs 0: must be at least 1" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_shipped_profile(capsys):
    assert main(["--table"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(NAMES)


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=f"known: .*{NAMES[0]}"):
        make_profile("gpt-5-tp1-h100")
