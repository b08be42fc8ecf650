"""`fleetsim trace plot`: a trace at a glance."""

from pathlib import Path
from typing import Annotated

import typer

from fleetsim.cli.trace.inputs import FormatOption, check_place, read_trace, title_of


def plot(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A file; 'sample' is the bundled one.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The figure to write, such as trace.png.")
    ] = Path("trace.png"),
    format: FormatOption = None,
) -> None:
    """Draw rate over time, lengths, gaps between arrivals, and ideal prefix hits.

    \b
    Examples:
      fleetsim trace plot sample
      fleetsim trace plot my_trace.csv --out my_trace.png
    """
    from fleetsim.traces.errors import InputError

    check_place(out)
    if out.suffix.lower() != ".png":
        raise InputError(f"--out {out}: must end in .png")
    loaded = read_trace(trace, format)

    from fleetsim.sim.report.trace_plot import trace_figure

    trace_figure(loaded, title_of(loaded)).savefig(out)
    typer.echo(f"fleetsim: figure in {out}", err=True)
