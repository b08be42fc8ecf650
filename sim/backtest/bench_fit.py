"""Fits a profile's overheads to results of ``vllm bench serve``, by simulation.

The base profile prices the GPU's steps. What the runs need beyond them is found by replaying them:
host work (from time per output token), the API server's time (from time to first token) and, only
if no host work explains the runs, factors on the steps' GPU time.
"""

from collections.abc import Callable, Sequence
from math import exp, log

import numpy as np

from fleetsim.calibration.profile import Profile
from fleetsim.sim.backtest.bench_parameters import (
    Parameter,
    changed,
    parameters,
    what_runs_tell,
)
from fleetsim.sim.backtest.bench_result import METRICS, STATISTICS, BenchFit, RunScore, worded
from fleetsim.sim.backtest.bench_runs import BenchRuns, replay_as_sent
from fleetsim.sim.backtest.measured import Floats, MeasuredRun
from fleetsim.sim.backtest.replay import Replay, scheduling_mode
from fleetsim.sim.backtest.scores import Comparison, compare
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.traces.errors import InputError

UNEXPLAINED_TPOT = 0.05
UNEXPLAINED_TTFT = 0.10
"""A mean further off than this, with overheads fitted, is the steps': of TPOT in any fitted run;
of TTFT in the run of the lowest rate, which queues least."""

_REFUSED_RATIO = 2.0
_REFUSED_ERROR = 0.25
_HUBER_WIDTH = 0.05
_MOST_ROUNDS = 20
_NEAR_BOUND = 2e-2
_POLISH_ROUNDS = 100
_STEP_SHARES = ((2.0, 1.0, 0.4), (3.0, 1.5, 0.4))
"""Slopes are taken over wide steps first, since a schedule changes by jumps. It has many small
valleys, so two series of steps are tried, and the best end is polished without slopes."""


class _Search:
    """Replays candidates; each only once."""

    def __init__(
        self,
        runs: Sequence[MeasuredRun],
        base: Profile,
        settings: EngineSettings,
        wanted: Sequence[Parameter],
        by_prompt: bool,
        progress: Callable[[], None],
    ) -> None:
        self._runs, self._base, self._settings = runs, base, settings
        self.wanted, self._by_prompt, self._progress = wanted, by_prompt, progress
        self._mode = scheduling_mode(settings)
        self._step_share = 1.0
        self._known: dict[tuple[float, ...], Floats] = {}

    def profile(self, x: Floats) -> Profile:
        return changed(self._base, self._mode, [p.name for p in self.wanted], x)

    def residuals(self, x: Floats) -> Floats:
        key = tuple(x.tolist())
        if key not in self._known:
            candidate, rows = self.profile(x), []
            for run in self._runs:
                simulated = replay_as_sent(run, candidate, self._settings)
                self._progress()
                rows += _misfits(run, simulated, self._by_prompt)
            self._known[key] = np.array(rows)
        return self._known[key]

    def jacobian(self, x: Floats) -> Floats:
        """By steps that are larger than the unevenness of a simulation."""
        here, columns = self.residuals(x), []
        for index, parameter in enumerate(self.wanted):
            step = parameter.step * self._step_share
            if x[index] + step > parameter.high:
                step = -step
            moved = x.copy()
            moved[index] += step
            columns.append((self.residuals(moved) - here) / step)
        return np.stack(columns, axis=1)

    def solve(self) -> Floats:
        """The parameters with the least robust sum of squared misfits."""
        if not self.wanted:
            return np.zeros(0)
        try:
            from scipy.optimize import least_squares, minimize
        except ImportError as error:
            raise InputError("from-bench needs scipy: pip install 'fleetsim[calibrate]'") from error
        ends: list[Floats] = []
        for shares in _STEP_SHARES:
            x = np.array([p.start for p in self.wanted])
            for self._step_share in shares:
                x = least_squares(
                    self.residuals,
                    x,
                    jac=self.jacobian,
                    bounds=([p.low for p in self.wanted], [p.high for p in self.wanted]),
                    method="dogbox",
                    loss="soft_l1",
                    f_scale=_HUBER_WIDTH,
                    max_nfev=_MOST_ROUNDS,
                    xtol=1e-4,
                    ftol=1e-5,
                ).x
            ends.append(x)
        best = min(ends, key=self._loss)
        moves = np.diag([p.step / 2 for p in self.wanted])
        polished: Floats = minimize(
            self._loss,
            best,
            method="Nelder-Mead",
            bounds=[(p.low, p.high) for p in self.wanted],
            options={"initial_simplex": np.vstack([best, best + moves]), "maxfev": _POLISH_ROUNDS},
        ).x
        return polished

    def _loss(self, x: Floats) -> float:
        """What is minimised: far misfits count by their size, near ones by its square."""
        scaled = self.residuals(x) / _HUBER_WIDTH
        return float((np.sqrt(1.0 + scaled**2) - 1.0).sum())


def fit_bench(
    runs: BenchRuns,
    base: Profile,
    settings: EngineSettings,
    fit_steps: bool | None = None,
    progress: Callable[[], None] = lambda: None,
) -> BenchFit:
    """Fit host work, the API server and, where they do not suffice, the steps' GPU time.

    Args:
        runs: the results, of one engine.
        base: the profile to start from.
        settings: the engine's.
        fit_steps: whether factors on the steps' GPU time are fitted; None for only if needed.
        progress: called after each replay.

    Raises:
        InputError: the runs are clearly of another GPU or model than the base profile; scipy is not
            installed.
    """
    split = what_runs_tell(runs.fitted)
    before = {run.path: compare(run, replay_as_sent(run, base, settings)) for run in runs.all}
    apart = exp(float(np.mean([log(1 + before[r.path].error("TPOT")) for r in runs.fitted])))
    mode = scheduling_mode(settings)

    def fitted(decode: bool, prefill: bool) -> tuple[_Search, Floats, dict[str, Comparison]]:
        wanted = parameters(base, mode, split, decode=decode, prefill=prefill)
        search = _Search(runs.fitted, base, settings, wanted, split.prompts_differ, progress)
        x = search.solve()
        profile = search.profile(x)
        scores = {
            str(run.path): compare(run, replay_as_sent(run, profile, settings))
            for run in runs.fitted
        }
        return search, x, scores

    told = list(split.reasons)
    decode = prefill = fit_steps is True
    while True:
        search, x, scores = fitted(decode, prefill)
        worst_tpot = max((scores[str(r.path)].error("TPOT") for r in runs.fitted), key=abs)
        first_ttft = scores[str(runs.fitted[0].path)].error("TTFT")
        off = (
            f"mean TPOT was up to {worst_tpot:+.1%} off, mean TTFT at the lowest rate "
            f"{first_ttft:+.1%}"
        )
        more_decode = not decode and abs(worst_tpot) > UNEXPLAINED_TPOT
        more_prefill = not prefill and abs(first_ttft) > UNEXPLAINED_TTFT
        if fit_steps is not None or not (more_decode or more_prefill):
            break
        also = " and ".join(
            what for what, more in (("decodes", more_decode), ("prefills", more_prefill)) if more
        )
        told.append(f"before the GPU time of {also} was fitted too, {off}")
        decode, prefill = decode or more_decode, prefill or more_prefill
    if abs(worst_tpot) > UNEXPLAINED_TPOT or abs(first_ttft) > UNEXPLAINED_TTFT:
        told.append(f"the fit does not explain the runs: {off}".replace(" was ", " is "))
    values = {p.name: float(f"{v:.4g}") for p, v in zip(search.wanted, x, strict=True)}
    _check_same_engine(runs, base, apart, search.wanted, x, scores)
    profile = search.profile(x)
    found = tuple(
        RunScore(
            run,
            run is runs.held_out,
            before[run.path],
            compare(run, replay_as_sent(run, profile, settings)),
        )
        for run in runs.all
    )
    return BenchFit(worded(profile, base, mode, runs, values, found), values, tuple(told), found)


def _misfits(run: MeasuredRun, simulated: Replay, by_prompt: bool) -> list[float]:
    """Logarithms of simulated over measured, of each statistic of each metric."""
    rows = [
        log(max(row.simulated, 1e-9) / max(row.measured, 1e-9))
        for row in compare(run, simulated).rows
        if row.metric in METRICS and row.statistic in STATISTICS
    ]
    if by_prompt:
        edges = np.percentile(run.prompt_tokens, [25, 50, 75])
        quarters = np.searchsorted(edges, run.prompt_tokens)
        for quarter in range(4):
            members = quarters == quarter
            if members.any():
                was_s, is_s = run.ttft_s[members].mean(), simulated.ttft_s[members].mean()
                rows.append(log(max(is_s, 1e-9) / max(was_s, 1e-9)))
    return rows


def _check_same_engine(
    runs: BenchRuns,
    base: Profile,
    apart: float,
    wanted: Sequence[Parameter],
    x: Floats,
    scores: dict[str, Comparison],
) -> None:
    ends = [
        p.name
        for p, value in zip(wanted, x, strict=True)
        if not p.name.startswith("api")
        and (value > p.high - _NEAR_BOUND or value < p.low + _NEAR_BOUND)
    ]
    steps_end = {"decode", "prefill"} & set(ends)
    far = apart > _REFUSED_RATIO or apart < 1 / _REFUSED_RATIO
    where = f"{runs.fitted[0].path}" + (
        f" and {len(runs.all) - 1} more" if len(runs.all) > 1 else ""
    )
    worst = max((scores[str(r.path)].error("TPOT") for r in runs.fitted), key=abs)
    if abs(worst) > _REFUSED_ERROR or steps_end or (far and ends):
        at = f", with {' and '.join(ends)} at the end of what is plausible" if ends else ""
        units = "; are its times in seconds?" if not 1e-2 < apart < 1e2 else ""
        raise InputError(
            f"{where}: with profile {base.name} mean TPOT is {apart:.3g} times the measured, and "
            f"fitting leaves {worst:+.0%}{at}: the runs are of another GPU, model or "
            f"precision{units}"
        )
