"""From pydantic's errors to lines that say where, what is wrong, and what would be right."""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fleetsim.sim.scenario.yaml_text import Loc, dotted
from fleetsim.traces.errors import InputError, one_line

Where = Callable[[Loc], str]
"""Names the file and line, or the override, that a key came from."""


class ScenarioError(InputError):
    """A scenario that cannot be run; `problems` holds one line for each thing wrong."""

    def __init__(self, problems: list[str]) -> None:
        more = len(problems) - 1
        rest = f" (and {more} more: fleetsim validate lists them)" if more else ""
        super().__init__(problems[0] + rest)
        self.problems = tuple(map(one_line, problems))


def scenario_error(error: ValidationError, where: Where) -> ScenarioError:
    """All of a validation's findings, in the order of the scenario's keys."""
    problems = []
    for detail in error.errors(include_url=False):
        loc: Loc = detail["loc"]
        if detail["type"] == "unknown_key":
            loc = (*loc, detail["ctx"]["key"])
        elif loc and loc[-1] == "[key]":
            loc = loc[:-1]
        key = f"{dotted(loc)}: " if loc else ""
        problems.append(f"{where(loc)}: {key}{_sentence(detail)}")
    return ScenarioError(problems)


def _sentence(detail: ErrorDetails) -> str:
    given = _shown(detail["input"])
    context: dict[str, Any] = detail.get("ctx", {})
    write = _SENTENCES.get(detail["type"])
    return write(given, context) if write else detail["msg"]


_SENTENCES: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "missing": lambda given, ctx: "is missing; it must be given",
    "int_type": lambda given, ctx: f"{given} is not a whole number",
    "int_from_float": lambda given, ctx: f"{given} is not a whole number",
    "float_type": lambda given, ctx: f"{given} is not a number",
    "finite_number": lambda given, ctx: f"{given} is not a finite number",
    "bool_type": lambda given, ctx: f"{given} is neither true nor false",
    "string_type": lambda given, ctx: f"{given} is not text; put it in quotes if it is meant so",
    "string_too_short": lambda given, ctx: "is empty; give some text",
    "string_too_long": lambda given, ctx: f"is longer than {ctx['max_length']} characters",
    "string_pattern_mismatch": lambda given, ctx: (
        f"{given} is not a name; use letters, digits, '-' and '_', beginning with a letter or digit"
    ),
    "greater_than": lambda given, ctx: f"{given} is out of range; give more than {ctx['gt']:g}",
    "greater_than_equal": lambda given, ctx: f"{given} is out of range; give {ctx['ge']:g} or more",
    "less_than": lambda given, ctx: f"{given} is out of range; give less than {ctx['lt']:g}",
    "less_than_equal": lambda given, ctx: f"{given} is out of range; give {ctx['le']:g} or less",
    "literal_error": lambda given, ctx: f"{given} is not a choice here; give {ctx['expected']}",
    "model_type": lambda given, ctx: f"{given} stands where a mapping of keys to values belongs",
    "dict_type": lambda given, ctx: f"{given} stands where a mapping of keys to values belongs",
    "tuple_type": lambda given, ctx: f"{given} stands where a list belongs",
    "too_short": lambda given, ctx: "is empty; give at least one",
}


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
