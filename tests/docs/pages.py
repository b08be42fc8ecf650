"""The documentation's pages, their fenced blocks, and how a block is run.

A page is worked through in a folder of its own, block by block:

- a block with a file name behind its language (```python compare.py) is written to that file;
- the other ```python blocks are run, all together as one script, since later ones go on with
  what earlier ones made;
- in a ```console block each line after "$ " is run, and must print what the block shows. A line
  "..." stands for any lines; trailing blanks do not count.

What cannot be run as it stands (installing, a trace that is not shipped) belongs into ```sh.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(
    r"^```(?P<language>\w*)[ ]*(?P<name>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_ELISION = "..."
FLEETSIM = [sys.executable, "-m", "fleetsim.cli"]
_PROGRAMS = {
    "fleetsim": FLEETSIM,
    "python": [sys.executable],
    "make demo": [*FLEETSIM, "run", "--out", "runs/demo"],
}


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file name behind it if any, its text."""

    language: str
    name: str
    text: str
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page; start and end are the text's place in it."""
    return [
        Block(m["language"], m["name"], m["text"], m.start("text"), m.end("text"))
        for m in _BLOCK.finditer(page)
    ]


def run(arguments: list[str], folder: Path) -> str:
    """Run a command as a user in that folder; returns its standard output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = subprocess.run(
        arguments,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(arguments)}: {done.stderr}{done.stdout}")
    return done.stdout


def play(page: str, folder: Path) -> tuple[str, str]:
    """Work through a page.

    Returns:
        The page, and the page with every output as it really was.
    """
    renewed, end = [], 0
    script = ""
    for block in blocks(page):
        text = block.text
        if block.name:
            (folder / block.name).write_text(text, encoding="utf-8")
        elif block.language == "python":
            script += text
        elif block.language == "console":
            text = "".join(
                _play_command(command, shown, folder) for command, shown in _commands(text)
            )
        renewed += [page[end : block.start], text]
        end = block.end
    if script:
        run([sys.executable, "-c", script], folder)
    return page, "".join([*renewed, page[end:]])


def _commands(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines shown below it."""
    commands: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line.rstrip())
    return commands


def _play_command(command: str, shown: list[str], folder: Path) -> str:
    """The command and its output: as shown if that fits, else as it is."""
    program = next(name for name in _PROGRAMS if command == name or command.startswith(name + " "))
    arguments = command.removeprefix(program).split()
    found = [line.rstrip() for line in run(_PROGRAMS[program] + arguments, folder).splitlines()]
    fits = _fits(shown, found)
    return "\n".join([f"$ {command}", *(shown if fits else found)]) + "\n"


def _fits(shown: list[str], found: list[str]) -> bool:
    """Whether the output is the one shown, elisions apart."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == _ELISION else re.escape(line) + r"\n" for line in shown
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in found)) is not None
