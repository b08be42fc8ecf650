"""The engine decides every step as the real vLLM was recorded to, with leaps and without."""

from pathlib import Path

import pytest
from differential import fast_engine
from differential.compare import first_difference
from differential.golden import golden_files, load
from differential.recording import Recording


@pytest.mark.parametrize("leaps", [False, True], ids=["every step", "leaps"])
@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.name)
def test_engine_equals_golden(path: Path, leaps: bool) -> None:
    engine, cases = load(path)
    assert cases
    for workload, golden in cases:
        # How an aborted request ended is for the fleet to say, and not for the engine.
        ended = {name: r for name, r in golden.requests.items() if r.reason != "abort"}
        found = fast_engine.run(workload, leaps)
        difference = first_difference(Recording(golden.rows, ended), found, (engine, "fleetsim"))
        assert difference is None, f"{workload['name']}: {difference}"


def test_the_golden_files_are_all_here() -> None:
    cases = {path.name: len(load(path)[1]) for path in golden_files()}
    assert len(cases) == 11
    assert sum(cases.values()) >= 90
