"""The documentation shows the definitions as they are in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetsim.sim.results.definitions import definitions_markdown
from fleetsim.sim.results.finish import finish
from fleetsim.sim.results.recorder import Recorder

from .fake_run import fake_facts, fake_journeys, record
from .test_slo import ASlo

PAGE = Path(__file__).parents[3] / "docs" / "results.md"
BEGIN, END = "<!-- definitions -->\n", "\n<!-- /definitions -->"


def test_the_page_lists_the_definitions() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown == definitions_markdown(), "put definitions_markdown() between the marks"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journeys = fake_journeys(60)
    recorder = Recorder(tmp_path / "runs" / "quickstart-0")
    record(recorder, journeys, samples=5)
    finish(recorder, fake_facts(journeys), ASlo(), "complete")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)
    assert names["result"].status == "complete"  # type: ignore[attr-defined]
    assert (tmp_path / "latency.png").exists()
