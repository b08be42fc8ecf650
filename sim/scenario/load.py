"""A scenario file, with overrides, to a checked Scenario."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from fleetsim.sim.scenario.overrides import Override, apply_overrides
from fleetsim.sim.scenario.problems import ScenarioError, scenario_error
from fleetsim.sim.scenario.resolve import resolve
from fleetsim.sim.scenario.scenario import Origin, Scenario
from fleetsim.sim.scenario.template import TEMPLATE
from fleetsim.sim.scenario.yaml_text import Loc, dotted, parse_yaml
from fleetsim.traces.errors import InputError

DEFAULT_SOURCE = "default scenario"


def default_scenario() -> Scenario:
    """The bundled sample trace on four Llama-3.1-8B replicas: what `fleetsim run` runs."""
    return load_scenario(None)


def load_scenario(
    path: str | Path | None,
    overrides: Sequence[str] = (),
    *,
    trace: str | None = None,
    seed: int | None = None,
) -> Scenario:
    """Read a scenario file, apply changes, check everything but the trace's content.

    Args:
        path: a YAML file; None is the default scenario.
        overrides: changes `a.b=value`, applied in order, as `--set` takes them.
        trace: another trace, relative to the working folder, or `sample`.
        seed: another seed.

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
    if path is None:
        lines = {}  # nobody could look them up
    if not isinstance(data, dict):
        what = "is empty" if data is None else "is not a mapping of keys to values"
        raise InputError(
            f"{source}: {what}; `fleetsim init` writes a scenario to start from, and a trace is "
            "given with --trace"
        )
    if stem is not None:
        data.setdefault("name", stem)
    changes = [Override.parse(text) for text in overrides]
    if trace is not None:
        changes.append(Override(("workload", "trace"), trace, f"--trace {trace}"))
    if seed is not None:
        changes.append(Override(("seed",), seed, f"--seed {seed}"))
    written = apply_overrides(data, changes)
    where = _Whereabouts(source, lines, written)

    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        raise scenario_error(error, where) from None
    origin = Origin(source, folder, frozenset(dotted(loc) for loc in written))
    return resolve(scenario.with_origin(origin), where)


class _Whereabouts:
    """Says where a key came from: the override that wrote it, or its line in the file."""

    def __init__(self, source: str, lines: dict[Loc, int], written: dict[Loc, str]) -> None:
        self._source = source
        self._lines = lines
        self._written = written

    def __call__(self, loc: Loc) -> str:
        above = [loc[:end] for end in range(len(loc), 0, -1)]
        for at in above:
            if at in self._written:
                return self._written[at]
        for at in above:
            if at == loc or at not in self._lines:
                for key, override in self._written.items():
                    if key[: len(at)] == at:
                        return override
            if at in self._lines:
                return f"{self._source}:{self._lines[at]}"
        return self._source


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
