"""Imports a policy from its place: ``package.module:Class`` or ``path/to/file.py:Class``."""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
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
        raise InputError(
            f"{where}: importing {module_name} failed: {type(error).__name__}: {_text(error)}"
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


def _text(error: Exception) -> str:
    """The message in one line, and the innermost line of the user's code that it came from."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({Path(error.filename or '').name}, line {error.lineno})"
    text = str(error).partition("\n")[0]
    machinery = {__file__, import_module.__code__.co_filename}
    for frame in reversed(extract_tb(error.__traceback__)):
        if frame.filename not in machinery and not frame.filename.startswith("<frozen"):
            return f"{text} ({Path(frame.filename).name}, line {frame.lineno})"
    return text
