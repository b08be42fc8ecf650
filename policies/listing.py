"""Lists the policies that there are, for people."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from fleetsim.policies.registry import KINDS, find, names, params_model, place_of
from fleetsim.traces.errors import InputError
from pydantic_core import PydanticUndefined


@dataclass(frozen=True)
class ParamInfo:
    """A parameter of a policy, for people. `default` is "required" where there is none."""

    name: str
    type: str
    default: str
    description: str


@dataclass(frozen=True)
class PolicyInfo:
    """A policy, for people: its name, the first line of its docstring, where it is defined."""

    kind: str
    name: str
    summary: str
    place: str
    params: tuple[ParamInfo, ...]


def describe(kind: str | None = None) -> list[PolicyInfo]:
    """Every policy of a kind, or of all, with its parameters; a broken plugin says so itself."""
    infos = []
    for k in KINDS if kind is None else (kind,):
        for name in names(k):
            try:
                infos.append(_info(k, name, find(k, name, "listing")))
            except InputError as error:
                infos.append(PolicyInfo(k, name, f"cannot be used: {error}", "", ()))
    return infos


def _info(kind: str, name: str, cls: type) -> PolicyInfo:
    model = params_model(cls)
    params = []
    for key, field in model.model_fields.items() if model else ():
        default = field.get_default(call_default_factory=True)
        shown = "required" if default is PydanticUndefined else repr(default)
        kind_of = inspect.formatannotation(field.annotation).replace("typing.", "")
        params.append(ParamInfo(field.alias or key, kind_of, shown, field.description or ""))
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    return PolicyInfo(kind, name, summary, place_of(cls), tuple(params))
