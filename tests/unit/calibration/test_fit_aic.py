"""The script that makes the shipped profiles."""

import importlib.util
import sys
from pathlib import Path

import pytest

import fleetsim.calibration
from fleetsim.calibration.fit_aic import main, make_profile
from fleetsim.calibration.recipes import NAMES
from fleetsim.traces.errors import InputError

SHIPPED = Path(fleetsim.calibration.__file__).parent / "profiles"

needs_tables = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core is not installed (extra: aic)",
)


@pytest.mark.slow
@needs_tables
@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_is_written_again_byte_for_byte(name, tmp_path, capsys):
    assert main(["--profile", name, "--out", str(tmp_path)]) == 0
    assert (tmp_path / f"{name}.json").read_bytes() == (SHIPPED / f"{name}.json").read_bytes()
    assert "median" in capsys.readouterr().out


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


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=f"known: .*{NAMES[0]}"):
        make_profile("gpt-5-tp1-h100")
