"""What a run leaves: tables, summary, and the definition of every number."""

from fleetsim.sim.results.definitions import DEFINITIONS, definition
from fleetsim.sim.results.facts import (
    PoolFacts,
    Provenance,
    ReplicaRecord,
    RunFacts,
    TenantUsage,
)
from fleetsim.sim.results.finish import finish
from fleetsim.sim.results.histogram import LogHistogram
from fleetsim.sim.results.recorder import Recorder
from fleetsim.sim.results.result import Result
from fleetsim.sim.results.tally import ConservationError

__all__ = [
    "DEFINITIONS",
    "ConservationError",
    "LogHistogram",
    "PoolFacts",
    "Provenance",
    "Recorder",
    "ReplicaRecord",
    "Result",
    "RunFacts",
    "TenantUsage",
    "definition",
    "finish",
]
