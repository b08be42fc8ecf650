"""`fleetsim calibrate from-bench`: overheads from results of ``vllm bench serve``."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fleetsim.cli.calibrate.check import EngineOption
from fleetsim.cli.options import JsonOption


def from_bench(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT.json...",
            help="Of vllm bench serve --save-result --save-detailed; one server, several rates.",
        ),
    ],
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="NAME|FILE",
            help="The profile to start from: that model, precision and GPU.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The profile to write.")],
    engine: EngineOption = None,
    fit_steps: Annotated[
        bool | None,
        typer.Option(
            "--fit-steps/--no-fit-steps",
            help="Fit factors on GPU times too, or never; left out, only if overheads do not do.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PNG", help="Draw measured against simulated there."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit host work and the API server to bench results, by simulation.

    A profile says what GPUs take; what a server takes beyond them is found by replaying the runs.
    Runs at several rates tell more numbers than one does; what they cannot tell keeps the base
    profile's proportion, and that is said. Of three or more runs the middle one is kept from the
    fit and scores it. A result does not name the engine's settings: give them with --engine.

    \b
    Examples:
      fleetsim calibrate from-bench r1.json r4.json r16.json \\
          --profile llama-3.1-8b-bf16-tp1-h100 --engine max_num_seqs=256 \\
          --engine max_num_batched_tokens=8192 --out mine.json --plot mine.png
      fleetsim calibrate from-bench r4.json --profile mine.json --out other.json --no-fit-steps
    """
    from fleetsim.calibration.library import load_profile
    from fleetsim.cli.calibrate.output import write_profile
    from fleetsim.sim.backtest import parse_changes
    from fleetsim.sim.backtest.bench_fit import fit_bench
    from fleetsim.sim.backtest.bench_result import score_rows, validation
    from fleetsim.sim.backtest.bench_runs import read_bench_runs
    from fleetsim.sim.backtest.settings import replay_settings

    changes = parse_changes(engine or ())
    base, runs = load_profile(profile), read_bench_runs(results)
    settings = {run.path: replay_settings(run, base, changes) for run in runs.all}
    remarks = dict.fromkeys(remark for found in settings.values() for remark in found.remarks)
    remarks |= dict.fromkeys(
        f"{run.path}: {run.failed:,} failed requests are left out" for run in runs.all if run.failed
    )
    for remark in remarks:
        typer.echo(f"fleetsim: {remark}", err=True)
    with _counting() as progress:
        found = fit_bench(
            runs, base, settings[runs.all[0].path].engine, fit_steps=fit_steps, progress=progress
        )
    for told in found.told:
        typer.echo(f"fleetsim: {told}", err=True)
    written = found.profile.model_copy(update={"name": out.stem})
    write_profile(written, out)
    if plot is not None:
        import matplotlib

        matplotlib.use("Agg")
        from fleetsim.sim.backtest.bench_plot import bench_figure

        bench_figure(found).savefig(plot, format="png", dpi=150)
        typer.echo(f"fleetsim: diagnostics in {plot}", err=True)
    if as_json:
        report = {
            "profile": written.name,
            "base": base.name,
            "fitted": found.values,
            "told": list(found.told),
            "remarks": list(remarks),
            "validation_runs": validation(found.scores),
            "rows": score_rows(found),
        }
        print(json.dumps(report, indent=2, allow_nan=False))
        return
    from rich.console import Console

    from fleetsim.sim.backtest.bench_plot import bench_table

    print("\n".join(_number_lines(found.values)))
    Console(file=sys.stdout).print(bench_table(found))
    print(f"validation: {validation(found.scores)}")


def _number_lines(values: dict[str, float]) -> list[str]:
    """The fitted numbers in words."""
    words = {
        "host": "host work",
        "host_base": "host work of a step",
        "host_per_seq": "host work of a sequence",
        "api": "API server",
        "api_request": "API server, of a request",
        "api_token": "API server, of a prompt token",
        "decode": "GPU time of decodes",
        "prefill": "GPU time of prefills",
    }
    return [f"{words[name]}: {value:g} times the base profile's" for name, value in values.items()]


@contextmanager
def _counting() -> Iterator[Callable[[], None]]:
    """Counts replays on a terminal; how many it takes is not known beforehand."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console

    done = 0
    with Console(stderr=True).status("fitting") as status:

        def count() -> None:
            nonlocal done
            done += 1
            status.update(f"fitting: {done:,} replays")

        yield count
