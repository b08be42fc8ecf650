"""`fleetsim trace fetch`: published traces, checked by their hash."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.options import JsonOption

if TYPE_CHECKING:
    from fleetsim.traces.fetch import Progress


def fetch(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A name that --list shows.")
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Show the names, lengths and licences.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Keep it here, not in the cache folder."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Download a published trace, check its sha256, and print where it is.

    What was fetched before is not fetched again; a download that was cut off goes on where it
    ended. Without internet: put the files into a folder, as they are or as .gz, and name it in
    the environment variable FLEETSIM_TRACES; it is searched first. Downloading needs pooch: pip
    install 'fleetsim[fetch]'.

    \b
    Examples:
      fleetsim trace fetch --list
      fleetsim trace fetch mooncake-conversation
      FLEETSIM_TRACES=/data/traces fleetsim trace fetch azure-2023-code
    """
    from fleetsim.traces.errors import InputError
    from fleetsim.traces.fetch import fetch_trace
    from fleetsim.traces.published import PUBLISHED

    if show_list:
        _print_list(as_json)
        return
    if name is None:
        raise InputError(f"name a trace: {', '.join(PUBLISHED)}")
    with _bar() as progress:
        paths = fetch_trace(name, folder=folder, progress=progress)
    published = PUBLISHED[name]
    if as_json:
        about = {"paths": [str(path) for path in paths]}
        print(json.dumps({**about, "licence": published.licence, "cite": published.cite}, indent=2))
    else:
        print("\n".join(str(path) for path in paths))
    typer.echo(f"fleetsim: licence {published.licence}; {published.cite}", err=True)


def _print_list(as_json: bool) -> None:
    from dataclasses import asdict

    from fleetsim.traces.published import PUBLISHED

    if as_json:
        print(json.dumps({"traces": [asdict(one) for one in PUBLISHED.values()]}, indent=2))
        return
    for one in PUBLISHED.values():
        size = sum(file.size_bytes for file in one.files)
        print(f"{one.name}  ({size / 1e3:,.0f} kB, {one.licence})\n    {one.about}")


@contextmanager
def _bar() -> "Iterator[Progress | None]":
    """A bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("downloading", total=None)
        yield lambda here, size: bar.update(task, completed=here, total=size)
