"""A scenario file, with overrides, to a checked Scenario."""

from pathlib import Path

from fleetsim.sim.scenario.overrides import apply_overrides
from fleetsim.sim.scenario.problems import ScenarioError, scenario_error
from fleetsim.sim.scenario.scenario import Origin, Scenario
from fleetsim.sim.scenario.template import TEMPLATE
from fleetsim.sim.scenario.yaml_text import Loc, dotted, parse_yaml
from fleetsim.traces.errors import InputError
from pydantic import ValidationError

DEFAULT_SOURCE = "default scenario"


def default_scenario() -> Scenario:
    """The bundled sample trace on four Llama-3.1-8B replicas: what `fleetsim run` runs."""
    return load_scenario(None, [])


def load_scenario(path: str | Path | None, overrides: list[str] | None = None) -> Scenario:
    """Read a scenario file, apply `a.b=value` overrides, check everything but the trace.

    Args:
        path: a YAML file; None is the default scenario.
        overrides: changes, applied in order, as `--set` takes them.

    Raises:
        ScenarioError: keys or values that are wrong, all of them at once.
        InputError: no such file, not readable, broken YAML, an override that is none.
    """
    if path is None:
        text, source, folder, stem = TEMPLATE, DEFAULT_SOURCE, Path(), None
    else:
        text, source, folder, stem = (
            _read(Path(path)),
            str(path),
            Path(path).parent,
            Path(path).stem,
        )
    data, lines = parse_yaml(text, source)
    if not isinstance(data, dict):
        what = "is empty" if data is None else "is not a mapping of keys to values"
        raise InputError(f"{source}: {what}; `fleetsim init` writes a scenario to start from")
    if stem is not None:
        data.setdefault("name", stem)
    written = apply_overrides(data, overrides or [])

    def where(loc: Loc) -> str:
        """The override or the line that is nearest above the key."""
        for end in range(len(loc), -1, -1):
            if loc[:end] in written:
                return written[loc[:end]]
            if loc[:end] in lines and path is not None:
                return f"{source}:{lines[loc[:end]]}"
        return source

    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        raise scenario_error(error, where) from None
    origin = Origin(source, folder, frozenset(dotted(loc) for loc in written))
    return scenario.with_origin(origin)


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; `fleetsim init` writes one") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give a scenario file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not text (byte {error.start}); a scenario is a UTF-8 YAML file"
        ) from None


__all__ = ["DEFAULT_SOURCE", "ScenarioError", "default_scenario", "load_scenario"]
