"""`fleetsim calibrate check --prometheus`: a scenario against a real fleet's exported metrics."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fleetsim.sim.backtest.against_prometheus import PrometheusCheck


def check_prometheus(
    prometheus: Path,
    scenario: Path,
    *,
    trace: str | None,
    trace_start: str | None,
    changes: Sequence[str],
    seed: int | None,
    model: str | None,
    tolerance: float,
    load_tolerance: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Simulate, compare, print, and keep what was asked for."""
    from fleetsim.cli.folder import result_folder
    from fleetsim.cli.progress import progress_bar
    from fleetsim.sim.backtest.against_prometheus import Interrupted, check_against_prometheus
    from fleetsim.sim.backtest.premises import Tolerances
    from fleetsim.sim.backtest.prometheus_dump import read_dump
    from fleetsim.sim.backtest.prometheus_report import check_json, check_text
    from fleetsim.sim.scenario import load_scenario
    from fleetsim.traces.errors import InputError

    for option, value in (("--tolerance", tolerance), ("--load-tolerance", load_tolerance)):
        if not 0 < value < 1:
            raise InputError(f"{option} {value:g}: must be between 0 and 1, such as 0.1 for 10 %")
    folder = result_folder(out, "", 0) if out is not None else None
    loaded = load_scenario(scenario, changes, trace=trace, seed=seed)
    dump = read_dump(prometheus)
    try:
        with progress_bar(None) as show:
            result = check_against_prometheus(
                dump,
                loaded,
                trace_start=trace_start,
                model=model,
                tolerances=Tolerances(tolerance, load_tolerance),
                progress=show,
            )
    except Interrupted:
        raise typer.Exit(130) from None
    text = json.dumps(check_json(result), indent=2, allow_nan=False)
    if as_json:
        print(text)
    else:
        from rich.console import Console

        Console(file=sys.stdout).print(check_text(result))
    if folder is not None:
        _keep(result, text, folder)


def _keep(result: "PrometheusCheck", text: str, folder: Path) -> None:
    from fleetsim.sim.backtest.openmetrics import openmetrics_text
    from fleetsim.sim.backtest.prometheus_report import check_figure

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "check.json").write_text(text + "\n", encoding="utf-8")
    check_figure(result).savefig(folder / "check.png", dpi=150)
    with (folder / "simulated.om").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(openmetrics_text(result.scrapes))
    typer.echo(f"fleetsim: result in {folder}", err=True)
