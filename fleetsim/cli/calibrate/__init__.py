"""`fleetsim calibrate`: profiles from measurements, and how far they can be believed."""

import typer

from fleetsim.cli.calibrate.check import check, fit_host_command
from fleetsim.cli.calibrate.fit import fit
from fleetsim.cli.calibrate.from_aic import from_aic
from fleetsim.cli.calibrate.from_bench import from_bench
from fleetsim.cli.calibrate.from_layers import from_layers
from fleetsim.cli.calibrate.record import record
from fleetsim.cli.calibrate.validate import validate

calibrate = typer.Typer(
    name="calibrate",
    help="""
Make profiles from measurements, and check them against measured runs.

A profile is where the simulator's seconds come from; give its path as a pool's profile.

\b
Example:
  fleetsim calibrate from-layers layer_profile --out mine.json
  fleetsim calibrate check --profile mine.json --run measured_run
""",
    rich_markup_mode=None,
    invoke_without_command=True,
)


@calibrate.callback()
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


calibrate.command("from-aic", short_help="From measured kernels of H100 and H200.")(from_aic)
calibrate.command("from-layers", short_help="From times of single layers.")(from_layers)
calibrate.command("from-bench", short_help="Overheads from vllm bench serve.")(from_bench)
calibrate.command("check", short_help="Hold it against a run or a fleet.")(check)
calibrate.command("fit-host", short_help="Fit host work to a measured run.")(fit_host_command)
calibrate.command("record", short_help="How to record the steps of a vLLM server.")(record)
calibrate.command("fit", short_help="From recorded steps of a vLLM server.")(fit)
calibrate.command("validate", short_help="Hold it all against published runs.")(validate)
