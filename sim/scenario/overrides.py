"""`--set a.b=c`, `--trace`, `--seed`: changes to a scenario before it is checked."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fleetsim.sim.scenario.frontdoor import Router
from fleetsim.sim.scenario.section import suggest
from fleetsim.sim.scenario.yaml_text import Loc, dotted, parse_yaml
from fleetsim.traces.errors import InputError

_NAMED_BY_USER = {("pools",): "pool", ("gateway", "tenants"): "tenant"}
_DEFAULT_POLICY: dict[tuple[str, ...], str] = {
    ("router", "routing"): Router().routing.policy,
    ("router", "admission"): Router().admission.policy,
}
_EXCLUDES = {"trace": ("synthetic", "format"), "synthetic": ("trace", "format")}


@dataclass(frozen=True, slots=True)
class Override:
    """One change: the key as a list of steps, the value, and how the user said it."""

    steps: tuple[str, ...]
    value: Any
    source: str

    @classmethod
    def parse(cls, text: str) -> "Override":
        """`a.b=value`, the value in YAML: `8`, `true`, `30s`, `[a, b]`, `{policy: random}`, `null`.

        Raises:
            InputError: no `=`, an empty key, a value that is not YAML.
        """
        source = f"--set {text}"
        key, equals, value = text.partition("=")
        steps = tuple(key.strip().split("."))
        if not equals or not all(steps):
            raise InputError(f"{source}: is not a change; write it as a.b=value")
        return cls(steps, parse_yaml(value, source)[0], source)


def apply_overrides(data: dict[str, Any], overrides: Iterable[Override]) -> dict[Loc, str]:
    """Write each change into `data`, in order, and say which override wrote which key.

    An override is a change of mind, so two things follow from it: another `policy` starts from
    its own defaults, without the parameters that the file gives the old one; and a trace takes
    the place of synthetic requests (and of the old trace's format), and the other way round.

    Raises:
        InputError: a path through something that holds no keys, a pool or tenant that is not
            there.
    """
    written: dict[Loc, str] = {}
    for override in overrides:
        loc = _Walk(data, override, written).set()
        for old in [old for old in written if old[: len(loc)] == loc]:
            del written[old]
        written[loc] = override.source
    return written


class _Walk:
    """Follows one override's steps into the data, making mappings on the way."""

    def __init__(self, data: dict[str, Any], override: Override, written: dict[Loc, str]) -> None:
        self._here: Any = data
        self._loc: Loc = ()
        self._override = override
        self._written = written

    def set(self) -> Loc:
        *through, last = self._override.steps
        for name in through:
            self._descend(self._step(name))
        step, value = self._step(last), self._override.value
        if step == "policy" and self._here.get("policy") != value:
            for key in [key for key in self._here if (*self._loc, key) not in self._written]:
                del self._here[key]
        if value is not None:
            self._drop_what_excludes(step)
        self._here[step] = value
        return (*self._loc, step)

    def _descend(self, step: str | int) -> None:
        if isinstance(self._here, dict):
            kind = _NAMED_BY_USER.get(tuple(map(str, self._loc)))
            if kind is not None and step not in self._here:
                hint = suggest(str(step), self._here) if self._here else f"there is no {kind} yet"
                raise InputError(f"{self._override.source}: there is no {kind} '{step}'; {hint}")
            self._drop_what_excludes(step)
            if self._here.get(step) is None:
                default = _DEFAULT_POLICY.get((*map(str, self._loc), str(step)))
                self._here[step] = {"policy": default} if default else {}
            elif step == "prefix_knowledge" and isinstance(self._here[step], str):
                self._here[step] = {"source": self._here[step]}
        self._here = self._here[step]
        self._loc = (*self._loc, step)

    def _drop_what_excludes(self, step: str | int) -> None:
        if self._loc == ("workload",):
            for other in _EXCLUDES.get(str(step), ()):
                if (*self._loc, other) not in self._written:
                    self._here.pop(other, None)

    def _step(self, name: str) -> str | int:
        here, source, at = self._here, self._override.source, dotted(self._loc)
        if isinstance(here, dict):
            return name
        if not isinstance(here, list):
            raise InputError(f"{source}: {at} is {here!r} and holds no keys")
        if not name.isdecimal() or int(name) >= len(here):
            raise InputError(
                f"{source}: {at} is a list of {len(here)}; name one by its position from 0"
            )
        return int(name)
