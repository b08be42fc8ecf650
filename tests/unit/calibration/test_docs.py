"""The table of docs/profiles.md is that of the profiles."""

from pathlib import Path

import pytest

from fleetsim.calibration import list_profiles, load_profile
from fleetsim.calibration.fit_aic import table_row

DOC = Path(__file__).parents[3] / "docs" / "profiles.md"


@pytest.mark.parametrize("name", list_profiles())
def test_the_table_of_profiles_is_current(name):
    assert table_row(load_profile(name)) in DOC.read_text().splitlines()


def test_the_table_has_no_other_rows():
    table = DOC.read_text().split("## All of them")[1]
    assert sum(line.startswith("| ") for line in table.splitlines()) == 1 + len(list_profiles())
