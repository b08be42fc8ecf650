"""`fleetsim init`: a commented scenario to start from."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("fleet.yaml"),
) -> None:
    """Write a scenario in which every key is explained.

    It is the default scenario, so it runs at once. A file that exists is left as it is.

    \b
    Examples:
      fleetsim init
      fleetsim init chat.yaml && fleetsim run chat.yaml
    """
    from fleetsim.sim.scenario.template import TEMPLATE
    from fleetsim.traces.errors import InputError

    text = TEMPLATE.replace("quickstart", path.stem) if _is_name(path.stem) else TEMPLATE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path}: exists already; name a new file, or remove it first") from None
    print(f"wrote {path}; next: fleetsim run {path}", file=sys.stderr)


def _is_name(stem: str) -> bool:
    return stem.replace("-", "").replace("_", "").isalnum() and stem.isascii() and stem[0].isalnum()
