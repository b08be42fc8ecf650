"""What every section of a scenario shares: strictness, durations, ranges."""

import difflib
import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*(us|ms|s|min|m|h|d)")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"


class Section(BaseModel):
    """A part of a scenario: every key is known, every value has exactly its type.

    Numbers are never taken from text, booleans never from numbers, and NaN and infinity are
    refused; a key that does not exist is refused with the nearest one that does.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, data: Any) -> Any:
        if isinstance(data, dict) and cls.model_config.get("extra") == "forbid":
            for key in data:
                if key not in cls.model_fields:
                    raise PydanticCustomError(
                        "unknown_key",
                        "is not a key here; {hint}",
                        {"key": str(key), "hint": suggest(str(key), cls.model_fields)},
                    )
            # a section whose keys are all commented out reads as null: its defaults
            return {key: value for key, value in data.items() if not cls._is_bare(key, value)}
        return data

    @classmethod
    def _is_bare(cls, key: str, value: Any) -> bool:
        return value is None and isinstance(cls.model_fields[key].default, Section)


def suggest(word: str, valid: Iterable[str]) -> str:
    """`did you mean X?` when X is near `word`, and otherwise the list of what is valid."""
    names = list(valid)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else f"valid: {', '.join(names)}"


def _duration(value: Any) -> Any:
    """Seconds from a number, or from text such as '250ms', '30s', '5m', '1.5h'."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise PydanticCustomError("duration", "is not a duration; " + _DURATION_HINT)
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise PydanticCustomError(
                "duration", "'{text}' is not a duration; " + _DURATION_HINT, {"text": value}
            )
        return float(match[1]) * _UNITS_S[match[2]]
    return float(value)


_DURATION_HINT = "give seconds as a number, or text such as 250ms, 30s, 5m, 2h"


def _duration_schema(lowest: dict[str, float]) -> WithJsonSchema:
    pattern = rf"^\s*{_DURATION.pattern}\s*$"
    number = {"type": "number", **lowest}
    return WithJsonSchema({"anyOf": [number, {"type": "string", "pattern": pattern}]})


Duration = Annotated[
    float, BeforeValidator(_duration), Field(ge=0.0), _duration_schema({"minimum": 0})
]
"""A length of time in seconds, zero or more."""

PositiveDuration = Annotated[
    float, BeforeValidator(_duration), Field(gt=0.0), _duration_schema({"exclusiveMinimum": 0})
]
"""A length of time in seconds, more than zero."""

Name = Annotated[str, Field(pattern=_NAME, max_length=100)]
"""A name that the user gives to a pool: letters, digits, dash and underscore."""
