"""`fleetsim calibrate fit`: a profile from recorded engine steps."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fleetsim.cli.options import JsonOption


def fit(
    steps: Annotated[
        list[Path], typer.Argument(metavar="STEPS...", help="Step files of one engine.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The profile to write.")],
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PNG", help="Draw the diagnostics of the fit there."),
    ] = None,
    usd_per_hour: Annotated[
        float, typer.Option("--usd-per-hour", metavar="USD", help="Price of the GPU.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Fit a profile to the steps that a vLLM engine recorded.

    Steps that lie far off count less. A quarter of the recording, in blocks, is kept from the fit
    and scores it. What was not recorded is not guessed: too few steps, or steps that are too much
    alike, are refused, and the profile says how large the largest were.

    \b
    Examples:
      fleetsim calibrate fit steps.jsonl --out mine.json --plot fit.png
      fleetsim calibrate fit rate1.jsonl rate8.jsonl --out mine.json
    """
    from fleetsim.calibration.from_steps import fit_step_files
    from fleetsim.cli.calibrate.output import fit_lines, write_profile

    found = fit_step_files(steps, out.stem, usd_per_hour)
    write_profile(found.profile, out)
    if plot is not None:
        import matplotlib

        matplotlib.use("Agg")
        from fleetsim.calibration.fit_plot import fit_figure

        fit_figure(found).savefig(plot, format="png", dpi=150)
        typer.echo(f"fleetsim: diagnostics in {plot}", err=True)
    if as_json:
        print(json.dumps(found.profile.model_dump(mode="json")["fit_error"], indent=2))
    else:
        print("\n".join(fit_lines(found.profile)))
