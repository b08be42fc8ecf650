"""Imports a policy from its place: ``package.module:Class`` or ``path/to/file.py:Class``."""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from fleetsim.traces.errors import InputError


def load_place(place: str, where: str, base_dir: Path | None) -> object:
    """The object that `place` names. Whatever is at that place is run, as any import is.

    Raises:
        InputError: no such file or module, it fails while importing, or it has no such name.
    """
    module_name, _, attribute = place.rpartition(":")
    if not module_name or not attribute:
        raise InputError(f"{where}: {place!r} is not module:Class or path/to/file.py:Class")
    try:
        if module_name.endswith(".py"):
            module = _import_file(module_name, where, base_dir)
        else:
            module = import_module(module_name)
    except InputError:
        raise
    except Exception as error:  # the user's code may raise anything
        text = str(error).partition("\n")[0]
        raise InputError(
            f"{where}: importing {module_name} failed: {type(error).__name__}: {text}"
            f"{_line_of(error)}"
        ) from error
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"{where}: {module_name} has no {attribute}")
        found = getattr(found, part)
    return found


def _import_file(name: str, where: str, base_dir: Path | None) -> ModuleType:
    """Import a file once per process and content, so that an edited file is read again."""
    path = ((base_dir or Path.cwd()) / name).resolve()
    if not path.is_file():
        raise InputError(f"{where}: no file {name} (looked in {path.parent})")
    # the name is kept for a path, so that a second import replaces the first one's policies
    module_name = f"fleetsim_policy_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    content = sha256(path.read_bytes()).hexdigest()
    loaded = sys.modules.get(module_name)
    if loaded is not None and getattr(loaded, "__fleetsim_sha256__", "") == content:
        return loaded
    spec = spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{where}: {name} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    module.__dict__["__fleetsim_sha256__"] = content
    return module


def _line_of(error: BaseException) -> str:
    """Where the user's own code failed: the innermost frame, or the line that did not parse."""
    if isinstance(error, SyntaxError):
        return f" (line {error.lineno})"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
