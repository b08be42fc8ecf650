"""`--set a.b=c`: changes to a scenario before it is checked."""

from typing import Any

from fleetsim.sim.scenario.section import suggest
from fleetsim.sim.scenario.yaml_text import Loc, dotted, parse_yaml
from fleetsim.traces.errors import InputError

_NAMED_BY_USER = {("pools",): "pool", ("gateway", "tenants"): "tenant"}
_EITHER_OR = {"trace": "synthetic", "synthetic": "trace"}


def apply_overrides(data: dict[str, Any], overrides: list[str]) -> dict[Loc, str]:
    """Write each `key=value` into `data`, in order, and say which override wrote which key.

    A value is YAML (`8`, `true`, `30s`, `[a, b]`, `{policy: random}`, `null`). Two things
    follow from an override, because it is meant as a change of mind: another `policy` starts
    from its own defaults, without the parameters that the file gives the old one; and setting
    `workload.trace` drops `workload.synthetic`, and the other way round.

    Raises:
        InputError: no `=`, an empty key, a value that is not YAML, a path through something
            that holds no keys, a pool or tenant that is not there.
    """
    written: dict[Loc, str] = {}
    for override in overrides:
        source = f"--set {override}"
        key, equals, text = override.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise InputError(f"{source}: is not a change; write it as a.b=value")
        value, _ = parse_yaml(text, source)
        loc = _set(data, parts, value, source, written)
        for old in [old for old in written if old[: len(loc)] == loc]:
            del written[old]
        written[loc] = source
    return written


def _set(
    data: dict[str, Any], parts: list[str], value: Any, source: str, written: dict[Loc, str]
) -> Loc:
    here: Any = data
    loc: Loc = ()
    for part in parts[:-1]:
        here, loc = _descend(here, part, loc, source)
    step = _step(here, parts[-1], loc, source)
    if step == "policy" and isinstance(here, dict) and here.get("policy") != value:
        for key in [key for key in here if (*loc, key) not in written]:
            del here[key]
    if loc == ("workload",) and step in _EITHER_OR and value is not None:
        here.pop(_EITHER_OR[step], None)
    here[step] = value
    return (*loc, step)


def _descend(here: Any, part: str, loc: Loc, source: str) -> tuple[Any, Loc]:
    step = _step(here, part, loc, source)
    if isinstance(here, dict):
        kind = _NAMED_BY_USER.get(tuple(str(p) for p in loc))
        if kind is not None and step not in here:
            raise InputError(
                f"{source}: there is no {kind} '{step}'; "
                + (suggest(str(step), here) if here else f"no {kind} is defined")
            )
        if here.get(step) is None:
            here[step] = {}
        elif isinstance(here[step], str) and step == "prefix_knowledge":
            here[step] = {"source": here[step]}
        if loc == ("workload",) and step in _EITHER_OR:
            here.pop(_EITHER_OR[step], None)
    return here[step], (*loc, step)


def _step(here: Any, part: str, loc: Loc, source: str) -> Any:
    if isinstance(here, dict):
        return part
    if isinstance(here, list):
        if part.isdecimal() and int(part) < len(here):
            return int(part)
        raise InputError(
            f"{source}: {dotted(loc)} is a list of {len(here)}; name one by its position from 0"
        )
    raise InputError(f"{source}: {dotted(loc)} is {here!r} and holds no keys")
