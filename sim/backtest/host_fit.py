"""Finds the host work with which a replay takes as long per token as the measured run.

One run of one load tells one number: how much longer its steps are than the profile's GPU time.
So the *shape* of the profile's host work (its base against its share per sequence) is kept, and
one factor on all of it is found. It can only be 0 or more.
"""

from dataclasses import dataclass, replace

from fleetsim.calibration.fit import rounded
from fleetsim.calibration.overheads import HostWorkRecord
from fleetsim.calibration.parameters import HostWork, SchedulingMode
from fleetsim.calibration.profile import Profile
from fleetsim.sim.backtest.bench_runs import replay_as_sent
from fleetsim.sim.backtest.measured import MeasuredRun
from fleetsim.sim.backtest.replay import scheduling_mode
from fleetsim.sim.backtest.scores import compare
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.traces.errors import InputError

_LARGEST_FACTOR = 16.0
_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class HostFit:
    """Host work of one scheduling mode, fitted.

    Attributes:
        mode: the scheduling mode of the run's engine.
        record: the host work, with where it comes from.
        factor: times the host work that the profile had.
        tpot_error: relative error of the mean TPOT that is left on the run of the fit.
    """

    mode: SchedulingMode
    record: HostWorkRecord
    factor: float
    tpot_error: float

    def put_into(self, profile: Profile) -> Profile:
        """The same profile, or one of another GPU, with this host work."""
        remark = "host work fitted to a measured run; see host_work"
        provenance = profile.provenance.model_copy(update={"validation_runs": remark})
        others = tuple(record for record in profile.host_work if record.mode != self.mode)
        host_work = (*others, self.record)
        return profile.model_copy(update={"host_work": host_work, "provenance": provenance})


def fit_host(run: MeasuredRun, profile: Profile, settings: EngineSettings) -> HostFit:
    """Scale the profile's host work until the mean TPOT is the run's.

    By bisection: more host work never makes a step shorter.

    Raises:
        InputError: the profile has no host work, or no factor up to 16 is enough.
    """
    mode = scheduling_mode(settings)
    base = profile.host_work_for(mode)
    work = base.work
    if not any((work.base_s, work.per_seq_s, work.residue_s, work.residue_per_seq_s)):
        raise InputError(
            f"profile {profile.name}: its {mode} host work is all 0, so there is nothing to scale"
        )

    def tpot_error(factor: float) -> float:
        scaled = _scaled(work, factor)
        return compare(run, replay_as_sent(run, profile, settings, scaled)).error("TPOT")

    low, high = 0.0, _LARGEST_FACTOR
    if tpot_error(high) < 0:
        raise InputError(
            f"{run.path}: even {high:g} times the profile's host work leaves its steps shorter "
            "than the run's; the profile is of another GPU, model or precision"
        )
    if tpot_error(low) >= 0:
        high = low  # without any, the steps are long enough
    for _ in range(_ROUNDS):
        if high == low:
            break
        middle = (low + high) / 2
        if tpot_error(middle) < 0:
            low = middle
        else:
            high = middle
    factor = rounded((low + high) / 2)
    record = HostWorkRecord(
        mode=mode,
        work=_scaled(work, factor),
        engine_version="that of the run",
        source=f"{factor:g} times ({base.source}), so that the mean TPOT is "
        f"that of the measured run {run.name} on {profile.gpu.name}",
    )
    return HostFit(mode, record, factor, tpot_error(factor))


def _scaled(work: HostWork, factor: float) -> HostWork:
    return replace(
        work,
        base_s=rounded(work.base_s * factor),
        per_seq_s=rounded(work.per_seq_s * factor),
        residue_s=rounded(work.residue_s * factor),
        residue_per_seq_s=rounded(work.residue_per_seq_s * factor),
    )
