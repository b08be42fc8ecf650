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
    as_json: JsonOption = False,
) -> None:
    """Fit a profile to vLLM's kernels as measured on H100 and H200.

    The tables are those of aiconfigurator-core (pip install 'fleetsim[aic]'), measured with vLLM
    0.24.0. Nothing is downloaded. The error that is printed is that of the fit on steps it did
    not see, against the tables; host work and the API server are those of the shipped profiles.

    \b
    Examples:
      fleetsim calibrate from-aic Qwen/Qwen3-8B --gpu h100 --out qwen3-8b.json
      fleetsim calibrate from-aic Qwen/Qwen3-30B-A3B-FP8 --gpu h200 --tp 2 --out qwen3-30b.json
      fleetsim calibrate from-aic ./my-model --gpu h200 --tp 4 --dtype fp8 --out mine.json
    """
    from fleetsim.calibration.from_aic import profile_from_aic
    from fleetsim.cli.calibrate.output import fit_lines, write_profile

    profile = profile_from_aic(
        model, gpu=gpu, tensor_parallel_size=tensor_parallel_size, dtype=dtype, name=out.stem
    )
    blocks = profile.kv_blocks()  # refuses what does not fit
    write_profile(profile, out)
    if as_json:
        print(json.dumps(profile.model_dump(mode="json")["fit_error"], indent=2))
    else:
        print("\n".join([*fit_lines(profile), f"{blocks:,} KV blocks of 16 tokens"]))
