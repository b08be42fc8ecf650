"""Fixtures shared by all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, so that a change is judged by what it changes. To look for new
# ones: pytest --hypothesis-profile=default
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of third-party traces and measurements; the test skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("third-party data folder ../shared is not here")
    return SHARED
