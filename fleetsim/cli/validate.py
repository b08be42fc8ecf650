"""`fleetsim validate`: whether a scenario would run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fleetsim.cli.options import JsonOption, SetOption, TraceOption


def validate(
    scenario: Annotated[Path, typer.Argument(help="The scenario's YAML file.")],
    trace: TraceOption = None,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a scenario, its policies, its profiles and its trace, without running it.

    Prints the scenario with every default filled in, or every problem, one a line; then the
    exit code is 2.

    \b
    Examples:
      fleetsim validate fleet.yaml
      fleetsim validate fleet.yaml --set pools.chat.engine.max_num_seqs=256 --json
    """
    from fleetsim.sim.scenario import ScenarioError, load_scenario, resolved_yaml
    from fleetsim.traces import InputError, load_trace

    try:
        checked = load_scenario(scenario, changes or (), trace=trace)
        path = checked.trace_path()
        if path is not None:
            load_trace(path, format=checked.workload.format)
    except InputError as error:
        problems = error.problems if isinstance(error, ScenarioError) else (str(error),)
        if as_json:
            print(json.dumps({"valid": False, "problems": list(problems)}, indent=2))
        else:
            for problem in problems:
                typer.echo(f"fleetsim: error: {problem}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        report = {"valid": True, "problems": [], "scenario": checked.model_dump(mode="json")}
        print(json.dumps(report, indent=2))
    else:
        print(resolved_yaml(checked), end="")
        typer.echo(f"fleetsim: {scenario} is valid", err=True)
