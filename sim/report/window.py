"""The requests that a figure speaks of, and the line that says which run it shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetsim.sim.report.format import digits, trace_remarks
from fleetsim.sim.request import COMPLETED
from fleetsim.sim.results.measures import MEASURE_COLUMNS, Floats, measures
from fleetsim.sim.results.result import Result
from fleetsim.sim.results.slo import Mask, met

_LONGEST_LINE = 150
"""Characters that fit the width of a figure."""


@dataclass(frozen=True, slots=True)
class WindowRequests:
    """Requests that arrived in the measurement window, in the order in which they ended.

    Attributes:
        arrival_s, completed: when each arrived, and whether it completed.
        good: whether it met every per-request bound; None when no bound is stated.
        measures: seconds, by name.
    """

    arrival_s: Floats
    completed: Mask
    good: Mask | None
    measures: dict[str, Floats]


def window_requests(result: Result) -> WindowRequests:
    """Read them from the result's tables."""
    columns = result.columns("requests", ("arrival_s", "outcome", *MEASURE_COLUMNS))
    window, bounds = result.summary["window"], result.summary["slo"]["per_request"]
    arrival_s = columns["arrival_s"]
    inside = (arrival_s >= window["start_s"]) & (arrival_s <= window["end_s"])
    completed = (columns["outcome"] == COMPLETED)[inside]
    measured = {name: values[inside] for name, values in measures(columns).items()}
    good = met(bounds, completed, measured) if bounds else None
    return WindowRequests(arrival_s[inside], np.asarray(completed, bool), good, measured)


def subtitle(result: Result) -> str:
    """Scenario, load, fleet, trace and what was done to it, in one line."""
    summary = result.summary
    about = summary["provenance"]
    fleet = " + ".join(f"{p['replicas']} x {p['profile']}" for p in summary["pools"].values())
    offered = digits(summary["rates"]["offered_per_s"])
    trace = ", ".join([about["trace"], *trace_remarks(about)])
    line = f"{about['scenario']}: {offered} requests/s to {fleet}; {trace}"
    line = line if result.status == "complete" else f"{result.status}! {line}"
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"
