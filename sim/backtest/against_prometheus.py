"""The back-test of a scenario against a Prometheus export of the fleet that it describes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import isfinite

import numpy as np

from fleetsim.sim.backtest.fleet_check import FleetCheck, check_fleet
from fleetsim.sim.backtest.fleet_series import (
    FleetSeries,
    Window,
    bucket_bounds_s,
    common_window,
    fleet_series,
    scrape_interval_s,
)
from fleetsim.sim.backtest.premises import Tolerances
from fleetsim.sim.backtest.prometheus_dump import HISTOGRAMS, NEEDED, RUNNING, Dump
from fleetsim.sim.backtest.simulated_dump import ScrapedFleet
from fleetsim.sim.scenario import Scenario
from fleetsim.sim.simulate import Progress
from fleetsim.traces import InputError, Trace

_RIGHT_START = "give --trace-start as 2026-11-24T14:00:00Z, with Z or an offset, or as seconds"
_LATEST_EPOCH_S = 1e11


@dataclass(frozen=True, slots=True)
class PrometheusCheck:
    """A back-test and what it was made of.

    Attributes:
        scenario, dump, trace, model: names.
        trace_start_s: when the trace's first request arrived, in seconds since 1970.
        window: what was compared.
        measured, simulated: both fleets in the window.
        scrapes: the simulated fleet's series over the whole run.
        tolerances: what was close enough.
        check: the verdicts.
        remarks: what a reader should know, one line each.
    """

    scenario: str
    dump: str
    trace: str
    model: str
    trace_start_s: float
    window: Window
    measured: FleetSeries
    simulated: FleetSeries
    scrapes: Dump
    tolerances: Tolerances
    check: FleetCheck
    remarks: tuple[str, ...]


class Interrupted(Exception):
    """The user stopped the simulation: there is nothing whole to compare."""


def check_against_prometheus(
    dump: Dump,
    scenario: Scenario,
    *,
    trace_start: str | None = None,
    model: str | None = None,
    tolerances: Tolerances | None = None,
    progress: Progress | None = None,
) -> PrometheusCheck:
    """Simulate a scenario and hold its replicas' metrics against the exported ones.

    Compared is the time that both the export and the trace cover, less the scenario's
    `measurement.warm_up_s` and `cool_down_s`.

    Args:
        dump: the export.
        scenario: the fleet, with the trace of the export's time.
        trace_start: when the trace's first request arrived, RFC 3339 or seconds since 1970; None
            where the trace knows it.
        model: value of the label model_name; None where there is only one.
        tolerances: what is close enough.
        progress: told how far the simulation is.

    Raises:
        InputError: an export or a scenario that cannot be used, or times that do not overlap.
        Interrupted: by Ctrl-C.
    """
    _check_workload(scenario)
    chosen = _choose_model(dump, model)
    dump = dump.of_model(chosen)
    missing = [metric for metric in NEEDED if not dump.of(metric)]
    if missing:
        raise InputError(
            f"{dump.name}: {', '.join(missing)} not with model_name={chosen!r}, which {RUNNING} "
            "has; export all series with the same labels"
        )
    bounds_s = {metric: bucket_bounds_s(dump, metric) for metric in HISTOGRAMS}
    fleet = ScrapedFleet(scenario, scrape_interval_s(dump))
    trace = fleet.trace
    trace_name = trace.metadata.source_path or trace.metadata.source_name
    start_s = trace_start_s(trace_start, trace, trace_name)
    last_s = float(trace.arrival_s[-1])
    measurement = scenario.measurement
    if measurement.horizon_s is not None:
        last_s = min(last_s, measurement.horizon_s)
    window = common_window(
        dump, trace_name, start_s, measurement.warm_up_s, last_s - measurement.cool_down_s
    )
    measured = fleet_series(dump, window)
    if not any(np.nan_to_num(h.counts[-1]) for h in measured.histograms.values()):
        raise InputError(f"{dump.name}: no request got a token in the window; export a busy time")
    pools, renamed = _pools_of(scenario, fleet, chosen)
    if fleet.run(progress).status == "interrupted":
        raise Interrupted
    scrapes = fleet.dump(pools, chosen, start_s, bounds_s)
    simulated = fleet_series(scrapes, window)
    latencies = fleet.latencies(pools, window.start_s - start_s, window.end_s - start_s)
    tolerances = tolerances or Tolerances()
    check = check_fleet(measured, simulated, latencies, tolerances, dump.name)
    return PrometheusCheck(
        scenario=scenario.name,
        dump=dump.name,
        trace=trace_name,
        model=chosen,
        trace_start_s=start_s,
        window=window,
        measured=measured,
        simulated=simulated,
        scrapes=scrapes,
        tolerances=tolerances,
        check=check,
        remarks=(*renamed, *_warm(measured, scenario), *measured.remarks),
    )


def trace_start_s(given: str | None, trace: Trace, trace_name: str) -> float:
    """When the trace's first request arrived, in seconds since 1970.

    Raises:
        InputError: it is neither given nor in the trace, or has no time zone.
    """
    text = given if given is not None else trace.metadata.t0_iso
    if text is None:
        raise InputError(
            f"{trace_name}: does not say when its first request arrived; {_RIGHT_START}"
        )
    where = f"--trace-start {text}" if given is not None else f"{trace_name} starts at {text}"
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if not (isfinite(seconds) and 0 <= seconds < _LATEST_EPOCH_S):
            raise InputError(f"{where}: is not in seconds since 1970; {_RIGHT_START}")
        return seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{where}: is not a time; {_RIGHT_START}") from None
    if moment.tzinfo is None:
        raise InputError(f"{where}: has no time zone; {_RIGHT_START}")
    return moment.timestamp()


def _check_workload(scenario: Scenario) -> None:
    workload = scenario.workload
    for wrong, what in (
        (workload.synthetic is not None, "is synthetic"),
        (workload.closed_loop is not None, "is a closed loop"),
        (workload.time_scale != 1.0, f"has time_scale {workload.time_scale:g}"),
    ):
        if wrong:
            raise InputError(
                f"{scenario.origin.source}: the workload {what}; a fleet is checked with the "
                "requests that it served, when it served them: give --trace"
            )


def _choose_model(dump: Dump, model: str | None) -> str:
    models = dump.models()
    if model is None and len(models) == 1:
        return models[0]
    if model not in models:
        said = "--model is needed" if model is None else f"--model {model}: is not in it"
        raise InputError(f"{dump.name}: has the models {', '.join(models)}; {said}")
    assert model is not None
    return model


def _pools_of(
    scenario: Scenario, fleet: ScrapedFleet, model: str
) -> tuple[list[str], tuple[str, ...]]:
    pools = fleet.pools
    same = [pool.name for pool in pools if pool.model == model]
    if same:
        return same, ()
    models = sorted({pool.model for pool in pools})
    if len(models) > 1:
        raise InputError(
            f"{scenario.origin.source}: no pool has model: {model}, as the export calls it; the "
            f"pools' models are {', '.join(models)}"
        )
    remark = f"the export's model {model or 'without a name'} is taken to be {models[0]}"
    return [pool.name for pool in pools], (remark,)


def _warm(measured: FleetSeries, scenario: Scenario) -> list[str]:
    running = measured.gauges[RUNNING]
    begins = float(np.nan_to_num(running[0]))
    if scenario.measurement.warm_up_s > 0 or begins <= 0.1 * float(np.nanmean(running)):
        return []
    return [
        f"{begins:.0f} requests were running when the window begins, but the simulated fleet "
        "starts empty and with cold caches; give the trace a lead and set measurement.warm_up_s"
    ]
