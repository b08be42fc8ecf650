"""`fleetsim calibrate check` and `fit-host`: the simulator against what was measured."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.options import JsonOption, SeedOption, SetOption, TraceOption

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
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME|FILE", help="With --run: the profile.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="PATH",
            help="One engine's run: a folder with requests.jsonl and meta.json, or the JSON of "
            "vllm bench serve.",
        ),
    ] = None,
    engine: EngineOption = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus",
            metavar="PATH",
            help="A fleet's export: answers of query_range or OpenMetrics text, a file or a "
            "folder of files.",
        ),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option("--scenario", metavar="FILE", help="With --prometheus: the fleet, in YAML."),
    ] = None,
    trace: TraceOption = None,
    trace_start: Annotated[
        str | None,
        typer.Option(
            "--trace-start",
            metavar="TIME",
            help="When the trace's first request arrived, if the trace does not know: "
            "2026-11-24T14:00:00Z, or seconds since 1970.",
        ),
    ] = None,
    changes: SetOption = None,
    seed: SeedOption = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="Of several models in the export, this model_name."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            help="Largest error of a mean that is trusted, twice that for p90 and p99; "
            "default 0.1.",
        ),
    ] = None,
    load_tolerance: Annotated[
        float | None,
        typer.Option(
            "--load-tolerance",
            metavar="SHARE",
            help="Largest difference in arrivals and prompt lengths; default 0.05.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="A new folder for check.json and check.png, and with --prometheus for the "
            "simulated series, simulated.om.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Hold the simulator against what was measured: one engine's run, or a fleet's metrics.

    With --run, a measured run is replayed on one simulated engine: its own arrivals, prompt and
    output lengths, with the engine settings that its metadata states. Requests that waited at
    least 50 ms in the queue and those that did not are scored apart, where the run tells:
    queueing hides the engine.

    With --prometheus, a scenario is simulated with the trace of the time that the export covers,
    and vLLM's TTFT, ITL, running, waiting, KV usage, prefix hits and token rates are compared,
    with a verdict for each: trust, do not trust, or cannot tell, and why.

    \b
    Examples:
      fleetsim calibrate check --profile rtx4090.json --run run_folder
      fleetsim calibrate check --profile mine.json --run bench.json --engine max_num_seqs=128
      fleetsim calibrate check --prometheus tuesday/ --scenario fleet.yaml --trace tuesday.csv \\
          --trace-start 2026-11-24T14:00:00Z --set measurement.warm_up_s=10m --out checked
    """
    from fleetsim.traces.errors import InputError

    with_run = {"--run": run, "--profile": profile, "--engine": engine}
    with_prometheus = {
        "--prometheus": prometheus,
        "--scenario": scenario,
        "--trace": trace,
        "--trace-start": trace_start,
        "--set": changes,
        "--seed": seed,
        "--model": model,
        "--tolerance": tolerance,
        "--load-tolerance": load_tolerance,
    }
    given = [
        [name for name, value in options.items() if value is not None and value != []]
        for options in (with_run, with_prometheus)
    ]
    if all(given):
        raise InputError(
            f"{given[0][0]} and {given[1][0]} do not go together: a profile is checked against "
            "one engine's --run, a --scenario against a fleet's --prometheus"
        )
    if prometheus is not None and scenario is not None:
        from fleetsim.cli.calibrate.check_prometheus import check_prometheus

        check_prometheus(
            prometheus,
            scenario,
            trace=trace,
            trace_start=trace_start,
            changes=changes or (),
            seed=seed,
            model=model,
            tolerance=0.10 if tolerance is None else tolerance,
            load_tolerance=0.05 if load_tolerance is None else load_tolerance,
            out=out,
            as_json=as_json,
        )
    elif profile is not None and run is not None:
        _check_run(profile, run, engine, out, as_json)
    elif given[1]:
        raise InputError("--prometheus and --scenario are both needed: an export, and its fleet")
    else:
        raise InputError("give --profile and --run, or --prometheus and --scenario")


def _check_run(
    profile: str, run: Path, engine: list[str] | None, out: Path | None, as_json: bool
) -> None:
    measured, loaded, settings = _load(profile, run, engine)

    from fleetsim.cli.folder import result_folder
    from fleetsim.sim.backtest import compare, replay_as_sent
    from fleetsim.sim.backtest.report import comparison_json, comparison_table

    folder = result_folder(out, "", 0) if out is not None else None
    simulated = replay_as_sent(measured, loaded, settings.engine)
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
