"""YAML text to plain values that remember the line they stand on.

YAML 1.2's core types only: `no` and `on` are text, `1e-3` is a number, `12:30` is not one. A
duplicate key is an error, because the reader of the file cannot tell which one counts.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from fleetsim.traces.errors import InputError

Loc = tuple[str | int, ...]
"""Keys and list positions from the top of the document."""

_MAX_DEPTH = 50
_MAX_VALUES = 100_000


class _CoreLoader(yaml.SafeLoader):
    """SafeLoader with the scalar types of YAML 1.2 instead of 1.1's surprises."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), [*"~nN", ""]
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789")
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = loader.construct_scalar(node).replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_CoreLoader.add_constructor("tag:yaml.org,2002:float", _float)


def parse_yaml(text: str, source: str) -> tuple[Any, dict[Loc, int]]:
    """The document as plain dicts, lists and scalars, and the line of every key.

    Args:
        text: one YAML document.
        source: what to call it in messages.

    Raises:
        InputError: broken YAML, several documents, a duplicate or non-text key, nesting or
            aliases beyond reason; the message names `source:line`.
    """
    try:
        loader = _CoreLoader(text)
        try:
            node = loader.get_single_node()
            lines: dict[Loc, int] = {}
            if node is None:
                return None, lines
            return _Reader(loader, source, lines).value(node, ()), lines
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        reason = " ".join(filter(None, (error.problem, error.context and f"({error.context})")))
        raise InputError(f"{where}: broken YAML: {reason}") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{source}: broken YAML: {reason}; expected plain UTF-8 text") from None
    except RecursionError:
        raise InputError(
            f"{source}: nested too deeply; a scenario needs no more than {_MAX_DEPTH} levels"
        ) from None


class _Reader:
    """Walks the node graph once, so that a line number is at hand for every value."""

    def __init__(self, loader: _CoreLoader, source: str, lines: dict[Loc, int]) -> None:
        self._loader = loader
        self._source = source
        self._lines = lines
        self._values = 0

    def value(self, node: yaml.Node, loc: Loc) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES or len(loc) > _MAX_DEPTH:
            raise InputError(
                f"{self._where(node)}: nested or repeated beyond reason; a scenario needs no more "
                f"than {_MAX_DEPTH} levels and {_MAX_VALUES} values"
            )
        self._lines.setdefault(loc, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*loc, i)) for i, item in enumerate(node.value)]
        return self._loader.construct_object(node, deep=True)

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in result:
                first = self._lines[(*loc, key)]
                raise InputError(
                    f"{self._where(key_node)}: {dotted((*loc, key))}: is here twice, first on "
                    f"line {first}; keep one"
                )
            self._lines[(*loc, key)] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, (*loc, key))
        return result

    def _key(self, node: yaml.Node) -> str:
        key: Hashable = None
        if isinstance(node, yaml.ScalarNode):
            key = self._loader.construct_object(node)
        if not isinstance(key, str):
            raise InputError(
                f"{self._where(node)}: a key is not text: {_shown(node)}; put it in quotes if it "
                "is meant as a name"
            )
        return key

    def _where(self, node: yaml.Node) -> str:
        return f"{self._source}:{node.start_mark.line + 1}"


def _shown(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"


def dotted(loc: Loc) -> str:
    """`pools.chat.replicas`, `slo.percentiles.0.metric`: the key as --set takes it."""
    return ".".join(str(part) for part in loc)
