"""`fleetsim calibrate from-layers`: a profile from the times of single layers."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fleetsim.cli.options import JsonOption


def from_layers(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="meta.yaml, dense.csv, attention.csv and per_sequence.csv."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The profile to write.")],
    model_config: Annotated[
        Path | None,
        typer.Option(
            "--model-config",
            metavar="FILE",
            help="The model's Hugging Face config.json; left out, a shipped profile's model.",
        ),
    ] = None,
    gpu_memory_gib: Annotated[
        float | None,
        typer.Option("--gpu-memory-gib", metavar="GIB", help="Memory of a GPU not known here."),
    ] = None,
    usd_per_hour: Annotated[
        float, typer.Option("--usd-per-hour", metavar="USD", help="Price of the GPU.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Fit a profile to a layer profile: the time of each layer by tokens, attention by shape.

    The format is LLMServingSim's. Dense models on one GPU. The error that is printed is that of
    the fit on shapes it did not see; `fleetsim calibrate check` holds it against a run.

    \b
    Examples:
      fleetsim calibrate from-layers layer_profile --out rtx4090.json
      fleetsim calibrate from-layers layer_profile --out x.json --model-config config.json
    """
    from fleetsim.calibration.from_layers import profile_from_layers
    from fleetsim.cli.calibrate.output import fit_lines, write_profile

    profile = profile_from_layers(
        folder,
        name=out.stem,
        model_config=model_config,
        gpu_memory_gib=gpu_memory_gib,
        usd_per_hour=usd_per_hour,
    )
    write_profile(profile, out)
    if as_json:
        print(json.dumps(profile.model_dump(mode="json")["fit_error"], indent=2))
    else:
        print("\n".join(fit_lines(profile)))
