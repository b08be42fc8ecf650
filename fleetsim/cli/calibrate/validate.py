"""`fleetsim calibrate validate`: simulated against published end-to-end runs."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fleetsim.cli.options import JsonOption


def validate(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="A new folder for validation.csv, validation.json and validation.png.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="SUBSTR", help="Only models with this in their name."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="Renew the tables on this Markdown page."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Processes; else one a core.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate the end-to-end runs of real vLLM servers that aiconfigurator-core ships.

    Closed loops on H100 and H200: mean time to first token and per output token, measured and
    simulated, row by row. Host work was fitted to some of the rows ("fitted"); all others were
    held out and say how far a prediction can be believed. A profile is fitted to the kernel
    tables for each model, GPU and size, as from-aic does (pip install 'fleetsim[aic]'). All rows
    take one or two minutes on two cores.

    \b
    Examples:
      fleetsim calibrate validate
      fleetsim calibrate validate --model llama --json
      fleetsim calibrate validate --out validated
    """
    import os

    from fleetsim.calibration.silicon import of_model, read_silicon
    from fleetsim.cli.folder import result_folder
    from fleetsim.sim.backtest.validation import validate as simulate
    from fleetsim.traces.errors import InputError

    if workers is not None and workers < 1:
        raise InputError(f"--workers: must be at least 1, got {workers}")
    folder = result_folder(out, "validation", 0) if out is not None else None
    rows = read_silicon()
    usable = rows.usable if model is None else of_model(rows.usable, model)
    with _progress() as progress:
        validation = simulate(usable, workers or os.cpu_count() or 1, progress)

    from fleetsim.sim.backtest.validation_report import validation_csv, validation_json

    excluded = rows.excluded if model is None else ()
    text = json.dumps(validation_json(validation, excluded), indent=2, allow_nan=False)
    if as_json:
        print(text)
    else:
        from fleetsim.sim.backtest.validation_report import print_validation

        print_validation(validation, excluded, sys.stdout)
    if folder is not None:
        from fleetsim.sim.backtest.validation_report import validation_figure

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "validation.json").write_text(text + "\n", encoding="utf-8")
        table = validation_csv(validation, excluded)
        (folder / "validation.csv").write_text(table, encoding="utf-8")
        validation_figure(validation).savefig(folder / "validation.png", dpi=150)
        typer.echo(f"fleetsim: result in {folder}", err=True)
    if page is not None:
        from fleetsim.sim.backtest.validation_page import renew_page

        renew_page(page, validation, excluded)
        typer.echo(f"fleetsim: tables renewed in {page}", err=True)


@contextmanager
def _progress() -> "Iterator[Callable[[int, int], None] | None]":
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("fitting and simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
