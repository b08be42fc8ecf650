"""`fleetsim trace convert`: the same workload for another tool."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fleetsim.cli.options import JsonOption
from fleetsim.cli.trace.inputs import FormatOption, check_place, read_trace


def convert(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A file; 'sample' is the bundled one.")
    ],
    to: Annotated[
        str,
        typer.Option("--to", metavar="NAME", help="parquet, mooncake, timed_trace or blis."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")],
    format: FormatOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Write nothing if anything would be lost.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a trace in another format, so that the same workload drives a real fleet.

    \b
    parquet      the common schema with its metadata; loses nothing
    mooncake     Mooncake JSONL: 512-token blocks, milliseconds
    timed_trace  JSONL for the timed_trace data set of vllm bench serve
    blis         BLIS TraceV2: CSV, and its YAML header beside it

    What the format cannot hold is listed, column by column, on standard error. Where the file is
    for another tool, the command line that replays it is printed; put in your MODEL.

    \b
    Examples:
      fleetsim trace convert my_trace.csv --to parquet --out my_trace.parquet
      fleetsim trace convert sample --to timed_trace --out sample.jsonl
      fleetsim trace convert my_trace.csv --to mooncake --out m.jsonl --strict
    """
    from fleetsim.traces.convert import convert_trace
    from fleetsim.traces.errors import InputError

    check_place(out)
    if out.suffix in (".gz", ".zst"):
        raise InputError(f"--out {out}: is written unpacked; leave {out.suffix} off")
    loaded = read_trace(trace, format)
    done = convert_trace(loaded, out, to=to, strict=strict)
    for line in done.lost:
        typer.echo(f"fleetsim: lost: {line}", err=True)
    if loaded.metadata.licence:
        typer.echo(f"fleetsim: licence of the data: {loaded.metadata.licence}", err=True)
    typer.echo(f"fleetsim: trace in {' and '.join(map(str, done.paths))}", err=True)
    if as_json:
        about = {"paths": list(map(str, done.paths)), "lost": done.lost, "command": done.command}
        print(json.dumps(about, indent=2))
    elif done.command is not None:
        print(done.command)
