"""Finds and reads profiles: the shipped ones by name, a user's own by path."""

import difflib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from fleetsim.calibration.profile import Profile
from fleetsim.traces.errors import InputError

_SHIPPED = Path(__file__).parent / "profiles"

ALIASES = {"llama-3.3-70b": "llama-3.1-70b", "deepseek-r1": "deepseek-v3"}
"""Models of the same architecture, whose steps cost the same: one set of profiles serves both."""


def list_profiles() -> tuple[str, ...]:
    """Names of the shipped profiles, in alphabetical order."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.json")))


def load_profile(name_or_path: str | Path) -> Profile:
    """Reads a shipped profile by name, or any profile by the path of its JSON file.

    The name may be that of another model of the same architecture, such as Llama 3.3 70B.

    Raises:
        InputError: no such profile (with the nearest names), or a file that is not a whole,
            consistent profile (naming the file and the key).
    """
    text = str(name_or_path)
    if (name := _shipped_name(text)) in list_profiles():
        return _read(_SHIPPED / f"{name}.json")
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_file() or len(path.parts) > 1:
        return _read(path)
    near = [name for name in list_profiles() if name.startswith(_shipped_name(text))][:3]
    near = near or difflib.get_close_matches(_shipped_name(text), list_profiles(), n=3, cutoff=0.3)
    hint = f"nearest: {', '.join(near)}" if near else f"shipped for: {', '.join(_models())}"
    raise InputError(f"profile {text!r} is unknown; {hint}; or give the path of a JSON file")


def _shipped_name(name: str) -> str:
    for alias, model in ALIASES.items():
        if name.startswith(f"{alias}-"):
            return model + name.removeprefix(alias)
    return name


def _models() -> list[str]:
    """What is served, without precision and GPUs: a name's last three parts."""
    return sorted({*(name.rsplit("-", 3)[0] for name in list_profiles()), *ALIASES})


def _read(path: Path) -> Profile:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read as a profile: {error.strerror}") from error
    try:
        profile = Profile.model_validate_json(content, strict=True)
    except ValidationError as error:
        raise InputError(f"{path}: {_first_fault(error)}") from error
    # Parameters have defaults for use in code; a file that leaves one out has lost it.
    missing = _missing_key(profile.model_dump(mode="json"), json.loads(content))
    if missing:
        raise InputError(f"{path}: {missing}: this key is missing; a profile states all of them")
    return profile


def _missing_key(whole: object, given: object) -> str:
    """The dotted path of the first key of ``whole`` that ``given`` lacks, or nothing."""
    if isinstance(whole, dict) and isinstance(given, dict):
        for key, value in whole.items():
            if key not in given:
                return str(key)
            if below := _missing_key(value, given[key]):
                return f"{key}.{below}"
    return ""


def _first_fault(error: ValidationError) -> str:
    faults = error.errors(include_url=False)
    first = faults[0]
    key = _dotted(first["loc"]) or "the file"
    more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
    return f"{key}: {first['msg'].removeprefix('Value error, ')}{more}"


def _dotted(location: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in location)
