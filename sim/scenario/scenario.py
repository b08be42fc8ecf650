"""One scenario: everything that decides a run, and nothing else does."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.sim.scenario.frontdoor import Client, Gateway, Router
from fleetsim.sim.scenario.measurement import Measurement, ResultOptions
from fleetsim.sim.scenario.pools import Pool
from fleetsim.sim.scenario.section import Name, Section, suggest
from fleetsim.sim.scenario.slo import Slo
from fleetsim.sim.scenario.workload import SAMPLE_TRACE, Workload


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a scenario came from: what its relative paths are relative to."""

    source: str = "scenario"
    """The file as the user named it, for messages."""
    folder: Path = Path()
    """The file's folder."""
    overridden: frozenset[str] = frozenset()
    """Dotted keys given on the command line: their paths are relative to the working folder."""


class Scenario(Section):
    """A workload, a fleet, an SLO and a seed; the same scenario gives the same result."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    """Names the result folder; left out, the file's name."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """The one seed from which every random draw is derived."""
    calibration_draw: int | None = Field(default=None, ge=0, lt=2**63)
    """Which of the machines that a profile may stand for: number k has step times off by factors
    drawn from the profile's uncertainty, the same for every seed. Left out, the profile as it
    is."""
    workload: Workload
    """The requests."""
    client: Client = Client()
    """The clients and their network."""
    gateway: Gateway = Gateway()
    """The front door."""
    router: Router = Router()
    """Model routing, admission, replica selection."""
    pools: dict[Name, Pool] = Field(min_length=1)
    """The fleet: pools by name."""
    slo: Slo = Slo()
    """What users were promised."""
    measurement: Measurement = Measurement()
    """What is measured."""
    results: ResultOptions = ResultOptions()
    """What is kept."""

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @model_validator(mode="after")
    def _default_pool_exists(self) -> Self:
        pool = self.router.default_pool
        if pool is not None and pool not in self.pools:
            raise PydanticCustomError(
                "default_pool",
                "router.default_pool: there is no pool '{pool}'; {hint}",
                {"pool": pool, "hint": suggest(pool, self.pools)},
            )
        return self

    @property
    def origin(self) -> Origin:
        """Where this scenario came from."""
        return self._origin

    def with_origin(self, origin: Origin) -> Self:
        """The same scenario, its relative paths read from another place."""
        copy = self.model_copy()
        copy._origin = origin
        return copy

    @property
    def default_pool(self) -> str:
        """The pool of requests that name no model."""
        return self.router.default_pool or next(iter(self.pools))

    def trace_path(self) -> Path | None:
        """The trace file to open; None for the bundled sample and for synthetic requests."""
        trace = self.workload.trace
        if trace is None or trace == SAMPLE_TRACE:
            return None
        return self.path("workload.trace", trace)

    def path(self, key: str, written: str) -> Path:
        """The file that `written` means at `key`: relative to the scenario file, or to the
        working folder when it came from the command line.
        """
        parts = key.split(".")
        typed = any(
            ".".join(parts[:end]) in self._origin.overridden for end in range(len(parts) + 1)
        )
        folder = Path() if typed else self._origin.folder
        return folder / Path(written).expanduser()
