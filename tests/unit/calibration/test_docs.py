"""The tables of docs/calibration.md are those of the profiles."""

from pathlib import Path

import pytest

from fleetsim.calibration import list_profiles, load_profile

DOC = Path(__file__).parents[3] / "docs" / "calibration.md"


@pytest.mark.parametrize("name", list_profiles())
def test_the_table_of_profiles_is_current(name):
    profile = load_profile(name)
    assert profile.fit_error is not None
    error = profile.fit_error.unseen
    shares = " | ".join(f"{100 * e:.1f} %" for e in (error.median, error.p95, error.worst))
    assert f"| {name} | {shares} | {profile.kv_blocks():,} |" in DOC.read_text()
