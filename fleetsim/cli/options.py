"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

TraceOption = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="PATH",
        help="Replay this trace instead of the scenario's; 'sample' is the bundled one.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one key of the scenario, e.g. pools.chat.replicas=8; may be repeated.",
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Another seed than the scenario's.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ScenarioArgument = Annotated[
    Path | None,
    typer.Argument(metavar="SCENARIO", help="A YAML file; left out, the default scenario."),
]
