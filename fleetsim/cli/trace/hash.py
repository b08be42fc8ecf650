"""`fleetsim trace hash`: a trace that can leave the house."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.options import JsonOption

if TYPE_CHECKING:
    from fleetsim.traces import Trace


def hash_command(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="A log of requests with prompts, or any trace."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="A new .parquet or .csv file.")
    ],
    salt_file: Annotated[
        Path | None,
        typer.Option(
            "--salt-file",
            metavar="FILE",
            help="A secret of 16 bytes or more; the same salt gives the same ids. Left out, a "
            "random one is used and not kept.",
        ),
    ] = None,
    block_tokens: Annotated[
        int, typer.Option("--block-tokens", metavar="N", help="Tokens that one id covers.")
    ] = 16,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="NAME",
            help="Counts the tokens of text: a tokenizer.json, a folder with one, or a name on the "
            "Hugging Face hub.",
        ),
    ] = None,
    chars_per_token: Annotated[
        float | None,
        typer.Option(
            "--chars-per-token",
            metavar="X",
            help="Without a tokenizer: cut text by characters, so many to a token.",
        ),
    ] = None,
    hash_labels: Annotated[
        bool,
        typer.Option("--hash-labels", help="Hash the names of tenants, sessions and models too."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Replace prompts by salted hashes, so that a trace can be shared without its content.

    Which prompts begin alike is kept, as block ids; what they say is not. It all happens on this
    machine (a tokenizer is fetched once, if it is given by name). A log with prompts is JSON Lines
    of {"timestamp", "request", "response"}; a trace without prompts gets its block ids hashed, and
    its labels with --hash-labels.

    Two files can be compared only if they were hashed with the same salt. Who has the salt can
    check whether a prompt is in the trace: keep it, and do not pass it on.

    \b
    Examples:
      fleetsim trace hash requests.jsonl --out trace.parquet --tokenizer Qwen/Qwen3-8B
      fleetsim trace hash requests.jsonl --out trace.csv --chars-per-token 4 --hash-labels
      head -c 32 /dev/urandom > salt
      fleetsim trace hash monday.jsonl --out monday.parquet --salt-file salt --tokenizer ./model
      fleetsim trace hash spend_logs.csv --out trace.parquet --hash-labels
    """
    import json

    from fleetsim.traces import hash_prompts
    from fleetsim.traces.errors import InputError
    from fleetsim.traces.prompt_blocks import BlockCutter, load_tokenizer
    from fleetsim.traces.salted_hash import SaltedHash, random_salt, read_salt

    _check_out(out, source, salt_file)
    salt = SaltedHash(random_salt() if salt_file is None else read_salt(salt_file))
    if tokenizer is not None and chars_per_token is not None:
        raise InputError("--tokenizer and --chars-per-token: give one of them")
    if hash_prompts.holds_prompts(source):
        encode = None if tokenizer is None else load_tokenizer(tokenizer)
        cutter = BlockCutter(block_tokens, encode, chars_per_token)
        with _counter() as progress:
            trace = hash_prompts.hash_log(source, salt, cutter, progress)
    elif tokenizer is not None or chars_per_token is not None:
        raise InputError(f"{source}: has no prompts; leave out --tokenizer and --chars-per-token")
    else:
        trace = hash_prompts.hash_trace(source, salt)
        if trace.block_ids is None and not hash_labels:
            raise InputError(
                f"{source}: has neither prompts nor block ids; add --hash-labels to hash its names"
            )
    if hash_labels:
        trace = hash_prompts.hash_labels(trace, salt)
    if salt_file is None:
        trace = hash_prompts.with_warning(
            trace, "hashed with a random salt that was not kept: no id here matches another file's"
        )
    _write(trace, out)
    typer.echo(f"fleetsim: {len(trace):,} requests in {out}", err=True)
    if as_json:
        metadata = trace.metadata
        typer.echo(
            json.dumps(
                {
                    "out": str(out),
                    "requests": len(trace),
                    "rows_read": metadata.rows_read,
                    "rows_dropped": metadata.rows_dropped,
                    "warnings": list(metadata.warnings),
                },
                sort_keys=True,
            )
        )
        return
    for line in trace.metadata.warnings:
        typer.echo(f"fleetsim: note: {line}", err=True)


def _check_out(out: Path, source: Path, salt_file: Path | None) -> None:
    from fleetsim.traces.errors import InputError

    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"--out {out}: must end in .parquet or .csv")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: the folder {out.parent} does not exist")
    if out.is_dir():
        raise InputError(f"--out {out}: is a folder; give a file in it")
    for given in (source, salt_file):
        if given is not None and out.exists() and given.exists() and out.samefile(given):
            raise InputError(f"--out {out}: is an input; name another file")


def _write(trace: "Trace", out: Path) -> None:
    from fleetsim.traces.plain_csv import write_csv

    if out.suffix == ".csv":
        write_csv(trace, out)
    else:
        trace.to_parquet(out)


@contextmanager
def _counter() -> Iterator[Callable[[int], None] | None]:
    """A count of requests on a terminal; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("hashing") as status:
        yield lambda requests: status.update(f"hashing: {requests:,} requests")
