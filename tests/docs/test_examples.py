"""What README.md and docs/ show is what happens.

Outputs in the pages are renewed with `make renew-docs`, which runs this file with RENEW_DOCS=1.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .pages import FLEETSIM, PAGES, ROOT, blocks, play, run


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_of_the_page_runs(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "runs/quickstart-0" in text:  # the page speaks of what `fleetsim run` has left
        run([*FLEETSIM, "run", "--set", "workload.head=500"], tmp_path)
    page, played = play(text, tmp_path)
    if os.environ.get("RENEW_DOCS"):
        path.write_text(played, encoding="utf-8")
    else:
        assert page.splitlines() == played.splitlines(), "if this is right: make renew-docs"


def test_the_demo_shown_is_the_demo() -> None:
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert "fleetsim run --out runs/demo\n" in recipe[1]


def test_commands_that_are_only_shown_have_options_that_exist(tmp_path: Path) -> None:
    """The ```sh blocks are not run, so at least their words must be right."""
    known: dict[str, str] = {}
    for path in PAGES:
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.language != "sh":
                continue
            for line in block.text.replace("\\\n", " ").splitlines():
                words = line.split()
                if not words or words[0] != "fleetsim":
                    continue
                group = words[1] in ("calibrate", "trace")  # have commands of its own
                command = " ".join(words[1 : 3 if group else 2])
                if command not in known:
                    known[command] = run([*FLEETSIM, *command.split(), "--help"], tmp_path)
                options = re.findall(r"(?<!\S)--[a-z-]+", line.split("#")[0])
                assert [o for o in options if o not in known[command]] == [], f"{path.name}: {line}"
    assert known


def test_make_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name}: make {target}"


def test_links_and_paths_lead_somewhere() -> None:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", text):
            assert (path.parent / target).exists(), f"{path.name}: link to {target}"
        rooms = "sim|policies|traces|calibration|fleetsim|tests|docs|scenarios"
        for named in re.findall(rf"`((?:{rooms})/[\w./-]*)`", text):
            assert (ROOT / named).exists(), f"{path.name}: names {named}"
