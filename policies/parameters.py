"""A policy's parameters: checked against its pydantic model, and described for people."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from fleetsim.traces.errors import InputError


@dataclass(frozen=True)
class ParamInfo:
    """A parameter of a policy, for people. `default` is "required" where there is none."""

    name: str
    type: str
    default: str
    description: str


def checked_params(
    model: type[BaseModel], given: dict[str, Any], what: str, where: str
) -> BaseModel:
    """The parameters as an instance of their model.

    Args:
        model: the policy's `Params`.
        given: what the scenario says, by key.
        what: the policy, for the message.
        where: file and key of the policy, for the message.

    Raises:
        InputError: the first thing wrong, in one line, with the nearest valid key.
    """
    keys = [field.alias or key for key, field in model.model_fields.items()]
    for key in given:
        # also for a plain BaseModel, which would drop what it does not know
        if key not in keys:
            hint = suggest(str(key), tuple(keys)) if keys else "; it has none"
            raise InputError(f"{where}.{key}: {what} has no such parameter{hint}")
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first, *rest = error.errors()
        key = ".".join(str(part) for part in first["loc"])
        got = "" if first["type"] == "missing" else f", not {first['input']!r}"
        more = f" (and {len(rest)} more)" if rest else ""
        text = first["msg"].replace("\n", " ")
        raise InputError(f"{where}{'.' if key else ''}{key}: {text}{got}{more}") from None


def suggest(name: str, known: tuple[str, ...]) -> str:
    """The end of a message about an unknown name: the nearest known one, and all of them."""
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return f"{hint} there are {', '.join(known)}"


def params_model(cls: type) -> type[BaseModel] | None:
    """The pydantic model of a policy's parameters; None if it has none."""
    model: type[BaseModel] | None = getattr(cls, "Params", None)
    return model


def param_infos(cls: type) -> tuple[ParamInfo, ...]:
    """The parameters of a policy's class, in order of definition."""
    model = params_model(cls)
    infos = []
    for key, field in model.model_fields.items() if model else ():
        default = field.get_default(call_default_factory=True)
        shown = "required" if default is PydanticUndefined else repr(default)
        type_name = inspect.formatannotation(field.annotation).replace("typing.", "")
        infos.append(ParamInfo(field.alias or key, type_name, shown, field.description or ""))
    return tuple(infos)
