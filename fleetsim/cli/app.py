"""The command's shape, and the one place where an error becomes an exit code.

Exit codes: 0 done, 2 something that the user gave is wrong, 130 stopped with Ctrl-C. Standard
output carries the result and nothing else; progress, notes and errors go to standard error.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fleetsim import __version__
from fleetsim.cli.calibrate import calibrate
from fleetsim.cli.init import init
from fleetsim.cli.policies import policies
from fleetsim.cli.run import run
from fleetsim.cli.schema import schema
from fleetsim.cli.trace import trace
from fleetsim.cli.validate import validate

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

_HELP = """
What would users have felt, and what would it have cost, on another fleet?

fleetsim replays a trace of LLM requests through a simulated fleet (gateway, router, vLLM
replicas) and reports TTFT, TPOT, end-to-end latency, goodput against an SLO, and cost.

\b
Examples:
  fleetsim run                                      the bundled sample on four H100s
  fleetsim run --set pools.chat.replicas=8          the same on eight
  fleetsim run --trace my_trace.csv --out my_run    your own trace
  fleetsim init my_fleet.yaml                       a commented scenario to edit
  fleetsim policies                                 routers, admission, limits
  fleetsim trace --help                             look at traces, convert and fetch them
  fleetsim calibrate --help                         step costs from your own measurements
  fleetsim trace --help                             traces from your own logs

\b
Exit codes: 0 done; 2 bad input, said in one line; 130 stopped with Ctrl-C.
"""

app = typer.Typer(
    name="fleetsim",
    help=_HELP,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(short_help="Simulate a scenario.")(run)
app.command(short_help="Check a scenario without running it.")(validate)
app.command(short_help="List the policies and their parameters.")(policies)
app.command(short_help="Write a commented scenario.")(init)
app.command(short_help="Print a scenario's JSON Schema.")(schema)
app.add_typer(trace, short_help="Look at traces, convert and fetch them.")
app.add_typer(calibrate, short_help="Make profiles from measurements, and check them.")
app.add_typer(trace, short_help="Make traces from your own logs.")

# Typer carries its own copy of click or depends on it, by version; this class is in both.
_UsageError: type[Any] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fleetsim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options before the command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; outside input never ends in a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=given or ["--help"], prog_name="fleetsim", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has had enough (`fleetsim schema | head`): typer's own answer,
        # where it notices first, is a silent 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        reason = _reason(error)
        if reason is None:
            raise
        _note("fleetsim: error: " + reason.replace("\n", " "))
        return EXIT_BAD_INPUT
    if code == EXIT_INTERRUPTED:
        _note("fleetsim: interrupted")
    return int(code or 0)


def _reason(error: Exception) -> str | None:
    """What to tell the user, or None when the mistake is ours."""
    if isinstance(error, _UsageError):
        message: str = error.format_message()
        return message
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        return f"{error.filename}: {what}" if error.filename else what
    # here and not above, because the package brings pyarrow, which --help can do without
    from fleetsim.traces.errors import InputError

    return str(error) if isinstance(error, InputError) else None


def _note(text: str) -> None:
    print(text, file=sys.stderr)
