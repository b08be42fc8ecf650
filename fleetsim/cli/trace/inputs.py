"""The traces that a command of this group gets, and what must be said about them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fleetsim.traces import Trace

FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Insist on this format of the input, such as mooncake; else its columns tell.",
    ),
]


def read_trace(path: str, format: str | None) -> "Trace":
    """Read one trace; the word `sample` is the bundled one, as in a scenario.

    Raises:
        InputError: as `load_trace`.
    """
    from fleetsim.traces import load_sample, load_trace

    if path == "sample":
        return load_sample()
    return load_trace(path, format=format)


def title_of(trace: "Trace") -> str:
    """Name and origin of a trace in one phrase."""
    about = trace.metadata
    return f"{about.source_name} ({about.source_path})" if about.source_path else about.source_name


def check_place(out: Path) -> None:
    """Refuse a place where no file can be written.

    Raises:
        InputError: a folder, or a file in a folder that does not exist.
    """
    from fleetsim.traces.errors import InputError

    if out.is_dir():
        raise InputError(f"--out {out}: is a folder; name a file in it")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: the folder {out.parent} does not exist")
