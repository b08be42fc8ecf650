"""`fleetsim trace`: look at traces, convert them, hide what is in them, fetch published ones."""

import typer

from fleetsim.cli.trace.convert import convert
from fleetsim.cli.trace.fetch import fetch
from fleetsim.cli.trace.hash import hash_command
from fleetsim.cli.trace.plot import plot
from fleetsim.cli.trace.stats import stats

trace = typer.Typer(
    name="trace",
    help="""
Look at traces, convert them to other formats, hide what is in them, fetch published ones.

\b
Example:
  fleetsim trace stats sample
  fleetsim trace plot sample --out sample.png
  fleetsim trace convert sample --to timed_trace --out sample.jsonl
  fleetsim trace hash requests.jsonl --out trace.parquet --tokenizer meta-llama/Llama-3.1-8B
""",
    rich_markup_mode=None,
    invoke_without_command=True,
)


@trace.callback()
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


trace.command("stats", short_help="Arrivals, lengths, sessions, prefixes in numbers.")(stats)
trace.command("plot", short_help="Rate, lengths, gaps, ideal prefix hits as a figure.")(plot)
trace.command("convert", short_help="To Parquet, Mooncake, vLLM timed_trace, BLIS.")(convert)
trace.command("hash", short_help="Replace prompts by salted hashes.")(hash_command)
trace.command("fetch", short_help="Download a published trace.")(fetch)
