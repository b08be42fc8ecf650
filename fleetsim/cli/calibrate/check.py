"""`fleetsim calibrate check` and `fit-host`: a profile against a measured run."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.options import JsonOption

if TYPE_CHECKING:
    from fleetsim.calibration.profile import Profile
    from fleetsim.sim.backtest.measured import MeasuredRun
    from fleetsim.sim.backtest.settings import ReplaySettings

ProfileOption = Annotated[
    str, typer.Option("--profile", metavar="NAME|FILE", help="A shipped profile, or a file.")
]
RunOption = Annotated[
    Path,
    typer.Option(
        "--run",
        metavar="PATH",
        help="A folder with requests.jsonl and meta.json, a recording, or vllm bench serve's JSON.",
    ),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="KEY=VALUE",
        help="A setting of the run's engine, e.g. max_num_seqs=128; may be repeated.",
    ),
]


def check(
    profile: ProfileOption,
    run: RunOption,
    engine: EngineOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="A new folder for check.json and check.png."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay a measured run on one simulated engine, and compare.

    Its own arrivals, prompt and output lengths, with the engine settings that its metadata
    states. Requests that waited at least 50 ms in the queue and those that did not are scored
    apart, where the run tells: queueing hides the engine.

    \b
    Examples:
      fleetsim calibrate check --profile rtx4090.json --run run_folder
      fleetsim calibrate check --profile mine.json --run bench.json --engine max_num_seqs=128
    """
    measured, loaded, settings = _load(profile, run, engine)

    from fleetsim.cli.folder import result_folder
    from fleetsim.sim.backtest import compare, replay
    from fleetsim.sim.backtest.report import comparison_json, comparison_table

    folder = result_folder(out, "", 0) if out is not None else None
    simulated = replay(measured, loaded, settings.engine)
    comparison = compare(measured, simulated)
    report = {
        "profile": loaded.name,
        "run": measured.name,
        "remarks": list(settings.remarks),
        "preemptions": simulated.preemptions,
        "steps": simulated.steps,
        **comparison_json(comparison),
    }
    text = json.dumps(report, indent=2, allow_nan=False)
    if as_json:
        print(text)
    else:
        from rich.console import Console

        Console(file=sys.stdout).print(comparison_table(comparison))
    if folder is not None:
        from fleetsim.sim.backtest.report import comparison_figure

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "check.json").write_text(text + "\n", encoding="utf-8")
        figure = comparison_figure(measured, simulated, f"{loaded.name} on {measured.name}")
        figure.savefig(folder / "check.png", dpi=150)
        typer.echo(f"fleetsim: result in {folder}", err=True)


def fit_host_command(
    profile: ProfileOption,
    run: RunOption,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The profile to write.")],
    engine: EngineOption = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="NAME|FILE",
            help="Write this profile, of another GPU or model, with the host work that was found.",
        ),
    ] = None,
) -> None:
    """Scale a profile's host work until the mean TPOT of a measured run comes out.

    One run tells one number, so one factor on all of the profile's host work is fitted. Check
    the result against another run: on this one the agreement is no evidence.

    \b
    Examples:
      fleetsim calibrate fit-host --profile rtx4090.json --run run_folder --out fitted.json
      fleetsim calibrate fit-host --profile a.json --run run_a --into b.json --out b_fitted.json
    """
    measured, loaded, settings = _load(profile, run, engine)

    from fleetsim.calibration.library import load_profile
    from fleetsim.cli.calibrate.output import write_profile
    from fleetsim.sim.backtest import fit_host

    target = load_profile(into) if into is not None else loaded
    found = fit_host(measured, loaded, settings.engine)
    write_profile(found.put_into(target).model_copy(update={"name": out.stem}), out)
    print(
        f"host work x {found.factor:g}; mean TPOT of {measured.name} is then"
        f" {found.tpot_error:+.2%} off"
    )


def _load(
    profile: str, run: Path, engine: list[str] | None
) -> "tuple[MeasuredRun, Profile, ReplaySettings]":
    from fleetsim.calibration.library import load_profile
    from fleetsim.sim.backtest import parse_changes, read_run, replay_settings

    changes = parse_changes(engine or ())
    loaded, measured = load_profile(profile), read_run(run)
    settings = replay_settings(measured, loaded, changes)
    for remark in settings.remarks:
        typer.echo(f"fleetsim: {remark}", err=True)
    if measured.failed:
        typer.echo(f"fleetsim: {measured.failed:,} failed requests are left out", err=True)
    return measured, loaded, settings
