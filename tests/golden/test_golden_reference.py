"""The reference engine takes every decision that the real vLLM was recorded to take."""

from collections import Counter
from pathlib import Path

import pytest
from differential import reference_engine
from differential.compare import first_difference
from differential.coverage import PASSED_OVER, happened
from differential.golden import golden_files, load


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.name)
def test_reference_equals_golden(path: Path) -> None:
    engine, cases = load(path)
    assert cases
    for workload, golden in cases:
        found = reference_engine.run(workload)
        difference = first_difference(golden, found, (engine, "reference"))
        assert difference is None, f"{workload['name']}: {difference}"


def test_golden_files_hold_every_kind_of_event() -> None:
    counts: Counter[str] = Counter()
    for path in golden_files():
        for workload, golden in load(path)[1]:
            counts += happened(workload, golden)
    missing = {
        "preemptions",
        "resumptions",
        "hit tokens",
        "hit tokens of resumed",
        "twin hits in one step",
        "hits on a running request's output",
        "hits on an ended request's output",
        "ended by a token in flight when preempted",
        PASSED_OVER,
        "ended by stop",
        "ended by length",
        "ended by abort while waiting",
        "ended by abort while running",
        "ended by abort while preempted",
    } - counts.keys()
    assert not missing
