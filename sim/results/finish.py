"""The end of a run: from the recorder and the simulator's facts to a result."""

from __future__ import annotations

from fleetsim.sim.results.facts import RunFacts
from fleetsim.sim.results.recorder import Recorder, Status
from fleetsim.sim.results.result import Result
from fleetsim.sim.results.slo import Slo
from fleetsim.sim.results.summary import summarise


def finish(recorder: Recorder, facts: RunFacts, slo: Slo, status: Status) -> Result:
    """Write what is still held back, summarise the run, close the recorder.

    Raises:
        ConservationError: when a request was lost, made up or miscounted; no status is written.
        OSError: when something cannot be written; no status is written.
    """
    recorder.flush()
    recorder.close(facts, summarise(recorder.store, facts, slo), status)
    return Result(recorder.store)
