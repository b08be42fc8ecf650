"""The reference engine takes every decision that the real vLLM was recorded to take."""

from pathlib import Path

import pytest
from differential import reference_engine
from differential.compare import first_difference
from differential.golden import golden_files, load


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.name)
def test_reference_equals_golden(path: Path) -> None:
    engine, cases = load(path)
    assert cases
    for workload, golden in cases:
        found = reference_engine.run(workload)
        difference = first_difference(golden, found, (engine, "reference"))
        assert difference is None, f"{workload['name']}: {difference}"
