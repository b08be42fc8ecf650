"""`fleetsim run`: simulate a scenario."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.folder import result_folder
from fleetsim.cli.options import (
    JsonOption,
    ScenarioArgument,
    SeedOption,
    SetOption,
    TraceOption,
)
from fleetsim.cli.progress import progress_bar

if TYPE_CHECKING:
    from fleetsim.sim.results.result import Result


def run(
    scenario: ScenarioArgument = None,
    trace: TraceOption = None,
    changes: SetOption = None,
    seed: SeedOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="A new folder for the result; left out, runs/NAME-SEED, numbered if it exists.",
        ),
    ] = None,
    as_json: JsonOption = False,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress", help="A progress bar; left out, if this is a terminal."
        ),
    ] = None,
    plots: Annotated[
        bool, typer.Option("--plots/--no-plots", help="Draw latency.png and timeline.png.")
    ] = True,
) -> None:
    """Simulate a scenario, print what users would have felt, keep the result in a folder.

    The folder holds the requests as Parquet, summary.json, the scenario with every default
    filled in, and two pictures. Ctrl-C keeps what there is so far, marked as interrupted.

    \b
    Examples:
      fleetsim run
      fleetsim run fleet.yaml --seed 1 --out runs/seed1
      fleetsim run fleet.yaml --trace azure.csv --set workload.time_scale=4
      fleetsim run --set router.routing.policy=round_robin --json | jq .
    """
    from fleetsim.sim.scenario import load_scenario

    loaded = load_scenario(scenario, changes or (), trace=trace, seed=seed)
    folder = result_folder(out, loaded.name, loaded.seed)

    from fleetsim.sim.simulate import simulate

    with progress_bar(progress) as show:
        result = simulate(loaded, out=folder, progress=show)
    if plots:
        _draw(result, folder)
    _print(result, as_json)
    typer.echo(f"fleetsim: result in {folder}", err=True)
    if result.status == "interrupted":
        typer.echo("fleetsim: this result is partial, and says so", err=True)
        raise typer.Exit(130)


def _print(result: "Result", as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.summary, indent=2, allow_nan=False))
        return
    from rich.console import Console

    from fleetsim.sim.report.table import summary_table

    Console(file=sys.stdout).print(summary_table(result))


def _draw(result: "Result", folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from fleetsim.sim.report.plots import latency_figure, timeline_figure

    for name, figure in (("latency", latency_figure), ("timeline", timeline_figure)):
        half_drawn = folder / f".{name}.png.tmp"
        try:
            figure(result).savefig(half_drawn, format="png", dpi=150)
            half_drawn.replace(folder / f"{name}.png")
        except OSError:
            half_drawn.unlink(missing_ok=True)
            raise
