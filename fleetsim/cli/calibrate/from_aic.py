"""`fleetsim calibrate from-aic`: a profile from measured kernel tables."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fleetsim.cli.options import JsonOption


def from_aic(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A Hugging Face id, or a folder with a config.json."),
    ],
    gpu: Annotated[str, typer.Option("--gpu", metavar="GPU", help="h100 or h200.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The profile to write.")],
    tensor_parallel_size: Annotated[
        int, typer.Option("--tp", metavar="N", help="GPUs of a replica: 1, 2, 4 or 8.")
    ] = 1,
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            metavar="DTYPE",
            help="Of the weights: auto, or fp8 to quantise a dense model.",
        ),
    ] = "auto",
    kv_cache_dtype: Annotated[
        str,
        typer.Option(
            "--kv-cache-dtype", metavar="DTYPE", help="Of the KV cache: auto (bfloat16) or fp8."
        ),
    ] = "auto",
    fp8_rows: Annotated[
        str,
        typer.Option(
            "--fp8-rows",
            metavar="ROWS",
            help="raw: all fp8 multiplications as measured; aligned: without those of sizes just "
            "above a multiple of 16, which are slow and which padded batches do not have.",
        ),
    ] = "raw",
    as_json: JsonOption = False,
) -> None:
    """Fit a profile to vLLM's kernels as measured on H100 and H200.

    The tables are those of aiconfigurator-core (pip install 'fleetsim[aic]'), measured with vLLM
    0.24.0. Nothing is downloaded. The error that is printed is that of the fit on steps it did
    not see, against the tables; host work and the API server are those of the shipped profiles.
    What ships already needs no fitting; docs/profiles.md lists it.

    \b
    Examples:
      fleetsim calibrate from-aic Qwen/Qwen3-1.7B --gpu h100 --out qwen3-1.7b.json
      fleetsim calibrate from-aic MiniMaxAI/MiniMax-M2.5 --gpu h200 --tp 4 --out minimax.json
      fleetsim calibrate from-aic ./my-model --gpu h200 --tp 4 --dtype fp8 --out mine.json
      fleetsim calibrate from-aic Qwen/Qwen3-32B --gpu h100 --tp 2 --kv-cache-dtype fp8 --out q.json
    """
    from fleetsim.calibration.from_aic import profile_from_aic
    from fleetsim.cli.calibrate.output import fit_lines, write_profile

    profile = profile_from_aic(
        model,
        gpu=gpu,
        tensor_parallel_size=tensor_parallel_size,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        fp8_rows=fp8_rows,
        name=out.stem,
    )
    write_profile(profile, out)
    if as_json:
        print(json.dumps(profile.model_dump(mode="json")["fit_error"], indent=2))
    else:
        blocks = profile.kv_blocks()
        print("\n".join([*fit_lines(profile), f"{blocks:,} KV blocks of 16 tokens"]))
