"""Fixtures shared by all tests."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of third-party traces and measurements; the test skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("third-party data folder ../shared is not here")
    return SHARED
