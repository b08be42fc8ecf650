"""Finds a policy by name, builds it with checked parameters, and lists what there is.

A policy is named in three ways: the name that `register` gave it; the name of an entry point of
another distribution (group ``fleetsim.policies``, entry ``routing.NAME``), imported when it is
first asked for; or its place, ``package.module:Class`` or ``path/to/file.py:Class``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from pydantic import BaseModel

from fleetsim.policies.base import AdmissionPolicy, Limiter, RoutingPolicy
from fleetsim.policies.loading import load_place
from fleetsim.policies.parameters import (
    ParamInfo,
    checked_params,
    param_infos,
    params_model,
    suggest,
)
from fleetsim.traces.errors import InputError

ENTRY_POINT_GROUP = "fleetsim.policies"

T = TypeVar("T")


@dataclass(frozen=True)
class _Kind:
    """A kind of policy: what a class must have, and where the shipped ones are."""

    methods: tuple[str, ...]
    attributes: tuple[str, ...]
    package: str


_KINDS: dict[str, _Kind] = {
    "routing": _Kind(("choose",), ("needs_scraped", "needs_prefix"), "fleetsim.policies.routing"),
    "admission": _Kind(
        ("admit",), ("needs_scraped", "needs_prefix"), "fleetsim.policies.admission"
    ),
    "limits": _Kind(
        ("try_reserve", "reconcile", "cancel"),
        ("largest_estimate_tokens",),
        "fleetsim.policies.limits",
    ),
}
KINDS = tuple(_KINDS)
"""The kinds of policy that there are."""

_registered: dict[tuple[str, str], type] = {}


@dataclass(frozen=True)
class PolicyInfo:
    """A policy, for people: its name, the first line of its docstring, where it is defined."""

    kind: str
    name: str
    summary: str
    place: str
    params: tuple[ParamInfo, ...]


def register(kind: str, name: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: the scenario can then say `name` where it wants a policy of this kind.

    A nested `class Params(PolicyParams)`, if there is one, describes the parameters, and the
    class is built as `cls(params)`, otherwise as `cls()`. Running the same definition again (a
    notebook cell, a reload) replaces it.

    Raises:
        ValueError: no such kind, a name that is taken (both places are named), or a name that
            could be read as a place.
        TypeError: the class lacks a method or a declaration that the kind needs.
    """
    if kind not in _KINDS:
        raise ValueError(f"no policy kind {kind!r}; the kinds are {', '.join(KINDS)}")
    if not name.isidentifier():
        raise ValueError(f"{kind} policy name {name!r} is not an identifier, such as least_tokens")

    def decorate(cls: type[T]) -> type[T]:
        _check_shape(kind, cls)
        taken = _registered.get((kind, name))
        if taken is not None and _place_of(taken) != _place_of(cls):
            raise ValueError(
                f"{kind} policy {name!r} is defined twice: {_line_of(taken)} and {_line_of(cls)}"
            )
        _registered[kind, name] = cls
        return cls

    return decorate


def names(kind: str) -> tuple[str, ...]:
    """All names of a kind, shipped ones and those of installed plugins, sorted."""
    _import_shipped(kind)
    known = {name for k, name in _registered if k == kind}
    return tuple(sorted(known | _plugins(kind).keys()))


def find(kind: str, name: str, where: str, base_dir: Path | None = None) -> type:
    """The class of a policy, by registered name, entry point, or place.

    Args:
        kind: one of `KINDS`.
        name: what the scenario says.
        where: file and key that say it, for the message.
        base_dir: folder that a relative ``file.py:Class`` starts from (default: the current one).

    Raises:
        InputError: nothing of that name; what was found cannot be imported, or is no such policy.
    """
    _import_shipped(kind)
    if ":" in name:
        cls = load_place(name, where, base_dir)
        return _checked(kind, cls, name, where)
    own = _registered.get((kind, name))
    plugin = _plugins(kind).get(name)
    if plugin is not None:
        cls = load_place(plugin.value, f"{where}: plugin {_distribution(plugin)}", None)
        if own is not None and own is not cls:
            raise InputError(
                f"{where}: {kind} policy {name!r} is defined twice: {_line_of(own)} and "
                f"{plugin.value} of {_distribution(plugin)}; say module:Class to choose one"
            )
        return _checked(kind, cls, plugin.value, where)
    if own is None:
        raise InputError(f"{where}: no {kind} policy {name!r}{suggest(name, names(kind))}")
    return own


@overload
def build(
    kind: Literal["routing"],
    name: str,
    params: Mapping[str, Any] | None,
    where: str,
    base_dir: Path | None = None,
) -> RoutingPolicy: ...
@overload
def build(
    kind: Literal["admission"],
    name: str,
    params: Mapping[str, Any] | None,
    where: str,
    base_dir: Path | None = None,
) -> AdmissionPolicy: ...
@overload
def build(
    kind: Literal["limits"],
    name: str,
    params: Mapping[str, Any] | None,
    where: str,
    base_dir: Path | None = None,
) -> Limiter: ...
def build(
    kind: str,
    name: str,
    params: Mapping[str, Any] | None,
    where: str,
    base_dir: Path | None = None,
) -> Any:
    """A new policy with checked parameters. `where` and `base_dir` are as for `find`.

    Raises:
        InputError: as `find`, or a parameter is unknown, missing or has a wrong value.
    """
    cls = find(kind, name, where, base_dir)
    model = params_model(cls)
    given = dict(params or {})
    if model is None:
        if given:
            key = next(iter(given))
            raise InputError(f"{where}.{key}: {kind} policy {name!r} has no parameters")
        return cls()
    return cls(checked_params(model, given, f"{kind} policy {name!r}", where))


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
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    return PolicyInfo(kind, name, summary, _place_of(cls), param_infos(cls))


def _missing(kind: str, cls: type) -> str:
    """What a class lacks to be a policy of this kind; "" if nothing."""
    spec = _KINDS[kind]
    lacks = [f"method {m}" for m in spec.methods if not callable(getattr(cls, m, None))]
    lacks += [f"attribute {a}" for a in spec.attributes if not hasattr(cls, a)]
    if lacks:
        return f"lacks {', '.join(lacks)}"
    model = getattr(cls, "Params", None)
    if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
        return "has a Params that is not a pydantic model"
    return ""


def _check_shape(kind: str, cls: type) -> None:
    problem = _missing(kind, cls)
    if problem:
        raise TypeError(f"{_line_of(cls)} cannot be a {kind} policy: it {problem}")


def _checked(kind: str, found: object, name: str, where: str) -> type:
    problem = _missing(kind, found) if isinstance(found, type) else "is not a class"
    if problem or not isinstance(found, type):
        raise InputError(f"{where}: {name} cannot be a {kind} policy: it {problem}")
    return found


def _import_shipped(kind: str) -> None:
    if kind not in _KINDS:
        raise ValueError(f"no policy kind {kind!r}; the kinds are {', '.join(KINDS)}")
    import_module(_KINDS[kind].package)


def _plugins(kind: str) -> dict[str, EntryPoint]:
    """Entry points of other distributions for a kind, by name, none of them imported yet."""
    found: dict[str, EntryPoint] = {}
    for point in _points(tuple(sys.path)):
        prefix, _, name = point.name.partition(".")
        if prefix != kind:
            continue
        other = found.setdefault(name, point)
        if other.value != point.value:
            raise InputError(
                f"{kind} policy {name!r} is defined twice: {other.value} of "
                f"{_distribution(other)} and {point.value} of {_distribution(point)}"
            )
    return found


@cache
def _points(_path: tuple[str, ...]) -> list[EntryPoint]:
    """Looked up once for a sys.path, since that reads the files of everything installed there."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=_distribution)


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"


def _place_of(cls: type) -> str:
    """Where a class is defined, as ``module:Class``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _line_of(cls: type) -> str:
    try:
        line = f", line {inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        line = ""
    return f"{_place_of(cls)}{line}"
