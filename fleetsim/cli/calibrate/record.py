"""`fleetsim calibrate record`: how to record the steps of a vLLM server."""

from pathlib import Path
from typing import Annotated

import typer

_SCRIPT = """\
#!/bin/sh
# Serves a model with vLLM and writes one line per engine step to {steps}, and what the frontend saw
# of each iteration and of each request that ended to {stats}.
# fleetsim must be installed beside vLLM: pip install fleetsim
#
# Send it a load that spans what you want to simulate: few and many requests at a time, short and
# long prompts, several minutes of it (vllm bench serve at three rates does). Stop it with Ctrl-C,
# then: fleetsim calibrate fit {steps} --out profile.json
# and, with another recording: fleetsim calibrate check --profile profile.json --run {stats}
#
# One file per recording: a file that exists is refused. Ranks of data parallelism behind the
# first write {steps}.dp1, {steps}.dp2, ... and {stats}.dp1, ...
#
# The second variable is for fleetsim's stat logger, which vLLM loads wherever fleetsim is installed
# and which writes nothing without it. vLLM keeps statistics then, --disable-log-stats or not.
# VLLM_PLUGINS, if you set it, must name fleetsim.
export {variable}="{steps}"
export {stats_variable}="{stats}"
exec vllm serve {model} {mode} \\
    --scheduler-cls fleetsim.calibration.vllm_recorder.{scheduler} "$@"
"""


def record(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="The model as vLLM is given it.")
    ] = "MODEL",
    steps: Annotated[
        str, typer.Option("--steps", metavar="FILE", help="Where the steps are written to.")
    ] = "steps.jsonl",
    sync: Annotated[
        bool, typer.Option("--sync", help="For an engine with --no-async-scheduling.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="SCRIPT", help="Write the script there; else print it."),
    ] = None,
) -> None:
    """Print a script that serves a model with vLLM and records every engine step and request.

    vLLM is told to use a subclass of its own scheduler that decides the same and takes notes, and
    finds a stat logger that notes each request's times in a second file. Options behind the
    script's name go to vllm serve.

    \b
    Examples:
      fleetsim calibrate record
      fleetsim calibrate record meta-llama/Llama-3.1-8B --out record.sh
      sh record.sh --max-num-seqs 256
    """
    import shlex

    from fleetsim.calibration import stats_file
    from fleetsim.calibration.step_file import FILE_VARIABLE
    from fleetsim.traces.errors import InputError

    script = _SCRIPT.format(
        steps=steps,
        stats=stats_file.path_beside(Path(steps)),
        variable=FILE_VARIABLE,
        stats_variable=stats_file.FILE_VARIABLE,
        model=shlex.quote(model),
        mode="--no-async-scheduling" if sync else "--async-scheduling",
        scheduler="RecordingScheduler" if sync else "AsyncRecordingScheduler",
    )
    if any(c in steps for c in '"$`\\\n'):
        raise InputError(f"--steps {steps}: give a file name without quotes and shell characters")
    if out is None:
        typer.echo(script, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(script)
    except FileExistsError:
        raise InputError(f"--out {out}: exists already; name a new file") from None
    typer.echo(f"fleetsim: script in {out}; run it with: sh {out}", err=True)
