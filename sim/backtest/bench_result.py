"""What a fit to bench results found: a profile with its sources in words, and scores of runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim.calibration.parameters import SchedulingMode
from fleetsim.calibration.profile import Profile
from fleetsim.sim.backtest.bench_parameters import other_modes
from fleetsim.sim.backtest.bench_runs import BenchRuns, in_flight, label, rate
from fleetsim.sim.backtest.measured import MeasuredRun
from fleetsim.sim.backtest.scores import Comparison

METRICS = ("TTFT", "TPOT", "ITL")
STATISTICS = ("mean", "p50", "p90")


@dataclass(frozen=True, slots=True)
class RunScore:
    """One run before and after the fit.

    Attributes:
        run: the run.
        held_out: whether the fit did not see it.
        before, after: its comparison with the base profile and with the fitted one.
    """

    run: MeasuredRun
    held_out: bool
    before: Comparison
    after: Comparison


@dataclass(frozen=True, slots=True)
class BenchFit:
    """A profile fitted to bench results.

    Attributes:
        profile: with the numbers, and where they come from.
        values: the fitted numbers, by name.
        told: what was fitted and what the runs cannot tell, in words.
        scores: of each run, by rising rate.
    """

    profile: Profile
    values: dict[str, float]
    told: tuple[str, ...]
    scores: tuple[RunScore, ...]


def worded(
    profile: Profile,
    base: Profile,
    mode: SchedulingMode,
    runs: BenchRuns,
    values: dict[str, float],
    scores: Sequence[RunScore],
) -> Profile:
    """The profile with its sources and its validation in words."""
    files = ", ".join(label(run) for run in runs.fitted)
    numbers = ", ".join(f"{name} {value:g}" for name, value in values.items())
    version = next((r.origin.engine_version for r in runs.all if r.origin.engine_version), None)
    engine = f"vLLM {version}" if version else "that of the runs"
    update: dict[str, Any] = {"uncertainty": None}  # it was the base profile's
    if any(name.startswith("host") for name in values):
        record = profile.host_work_for(mode)
        record = record.model_copy(
            update={
                "engine_version": engine,
                "source": f"fitted to {files}, from ({base.host_work_for(mode).source})",
            }
        )
        update["host_work"] = (*other_modes(profile, mode), record)
    if any(name.startswith("api") for name in values):
        update["api_server"] = profile.api_server.model_copy(
            update={
                "engine_version": engine,
                "source": f"fitted to {files}, from ({base.api_server.source})",
            }
        )
    remarks = [*base.provenance.remarks, f"fitted to bench results: {numbers}"]
    if {"decode", "prefill"} & set(values):
        update["fit_error"] = None  # it was the error of other step costs
        remarks.append(
            "the base profile's GPU time of steps is scaled, so its own fit error is void"
        )
    update["provenance"] = base.provenance.model_copy(
        update={
            "validation_runs": validation(scores),
            "overheads": f"{engine}, fitted to {files}",
            "fitted_by": f"fleetsim calibrate from-bench, from {base.name}",
            "remarks": tuple(remarks),
        }
    )
    return profile.model_copy(update=update)


def validation(scores: Sequence[RunScore]) -> str:
    """What the run that was kept from the fit says, or that there was none."""
    for score in scores:
        if score.held_out:
            errors = ", ".join(
                f"mean {metric} {score.after.error(metric):+.1%}"
                for metric in METRICS
                if any(row.metric == metric for row in score.after.rows)
            )
            return f"{label(score.run)}, kept from the fit: {errors}"
    return f"none: {len(scores)} bench results, all of them fitted to; three keep one out"


def score_rows(fit: BenchFit) -> list[dict[str, Any]]:
    """Statistics of each run before and after, in seconds; errors are relative, or None."""
    return [
        {
            "run": score.run.name,
            "requests_per_s": rate(score.run),
            "in_flight": in_flight(score.run),
            "held_out": score.held_out,
            "metric": after.metric,
            "statistic": after.statistic,
            "measured_s": after.measured,
            "before_s": before.simulated,
            "after_s": after.simulated,
            "before_error": before.error if after.measured else None,
            "after_error": after.error if after.measured else None,
        }
        for score in fit.scores
        for before, after in zip(score.before.rows, score.after.rows, strict=True)
        if after.metric in METRICS and after.statistic in STATISTICS
    ]
