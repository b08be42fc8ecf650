"""`fleetsim trace`: traces, before they are replayed."""

import typer

from fleetsim.cli.trace.hash import hash_command

trace = typer.Typer(
    name="trace",
    help="""
Make traces from your own logs, and look at them.

\b
Example:
  fleetsim trace hash requests.jsonl --out trace.parquet --tokenizer meta-llama/Llama-3.1-8B
""",
    rich_markup_mode=None,
    invoke_without_command=True,
)


@trace.callback()
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


trace.command("hash", short_help="Replace prompts by salted hashes.")(hash_command)
