"""Fits host work and the API server's latency to the runs that may be fitted to.

``python -m fleetsim.sim.backtest.overhead_fit`` prints what calibration/recipes.py states. By vLLM
version: host work ``a + b * sequences`` so that the simulated time per output token is the
measured one; then, for several times that a request may occupy the API server, the latency with
which the mean time to first token fits best. Each is also found without the runs of one
tensor-parallel size, and scored on those.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from fleetsim.calibration.parameters import HostWork
from fleetsim.calibration.profile import Profile
from fleetsim.calibration.silicon import FITTED_TENSOR_PARALLEL_SIZES, SiliconRow, read_silicon
from fleetsim.sim.backtest.measured import Floats
from fleetsim.sim.backtest.validation import (
    Outcome,
    Setup,
    engine_settings,
    fit_setup,
    is_kv_limited,
    setup_of,
    simulate_row,
)

_ROUNDS = 4
_REWEIGHTINGS = 30
_SMALL_ERROR = 0.02
"""Absolute errors are minimised, squares below this: a run that was disturbed must not steer."""
_START = np.array([0.5e-3, 20e-6])
_NUDGE = np.array([0.2e-3, 5e-6])

OCCUPYING_S = (0.0, 2e-3, 4e-3, 8e-3, 16e-3)
_LATENCY_START_S = 10e-3


@dataclass(frozen=True, slots=True)
class Fit:
    """Values that were found, and the absolute relative errors that they leave."""

    values: tuple[float, ...]
    errors: Floats

    def __str__(self) -> str:
        return (
            f"median {np.median(self.errors):.1%}, p95 {np.percentile(self.errors, 95):.1%} "
            f"of {len(self.errors)} runs"
        )


class OverheadFit:
    """Simulates runs of one vLLM version with other overheads than their profiles have.

    Args:
        rows: the runs.
        profiles: of their set-ups.
        pool: the processes that simulate.
    """

    def __init__(
        self,
        rows: Sequence[SiliconRow],
        profiles: dict[Setup, Profile],
        pool: Executor,
    ) -> None:
        self.rows = rows
        self._profiles = profiles
        self._pool = pool
        self._most = max(row.concurrency for row in rows)

    def without(self, tensor_parallel_size: int) -> tuple["OverheadFit", "OverheadFit"]:
        """The runs of other sizes, and those of this one."""
        others = [row for row in self.rows if row.tensor_parallel_size != tensor_parallel_size]
        these = [row for row in self.rows if row.tensor_parallel_size == tensor_parallel_size]
        return (
            OverheadFit(others, self._profiles, self._pool),
            OverheadFit(these, self._profiles, self._pool),
        )

    def host(self, a_s: float, b_s: float) -> HostWork:
        """Added to every step, whatever the scheduling.

        What asynchronous scheduling hides plays no part: these steps are longer than it.
        """
        return HostWork(residue_s=a_s, residue_per_seq_s=b_s, fitted_seqs=self._most)

    def fit_host(self) -> Fit:
        """``a`` and ``b`` in seconds, neither negative, by Gauss and Newton.

        The API server is the profiles': while a request is in it, its slot runs nothing.
        """
        x = _START
        jacobian = np.zeros((len(self.rows), 2))
        for round_ in range(_ROUNDS):
            residual = self._tpot_errors(x)
            if round_ < 2:
                nudged = [self._tpot_errors(x + step) - residual for step in np.diag(_NUDGE)]
                jacobian = np.stack(nudged, axis=1) / _NUDGE
            x = np.maximum(x + _robust_step(jacobian, residual), 0.0)
        return Fit(tuple(x.tolist()), np.abs(self._tpot_errors(x)))

    def host_errors(self, values: Sequence[float]) -> Fit:
        """What these values leave."""
        return Fit(tuple(values), np.abs(self._tpot_errors(np.array(values))))

    def fit_latency(self, host: HostWork, occupying_s: float) -> Fit:
        """The latency in seconds, given what each request occupies the API server for."""
        latency_s = _LATENCY_START_S
        measured_s = np.array([row.ttft_s for row in self.rows])
        for _ in range(_ROUNDS):
            missing_s = measured_s - self._ttft_s(host, occupying_s, latency_s)
            latency_s = max(0.0, latency_s + _weighted_median(missing_s, 1.0 / measured_s))
        errors = np.abs(self._ttft_s(host, occupying_s, latency_s) / measured_s - 1.0)
        return Fit((occupying_s, latency_s), errors)

    def _tpot_errors(self, x: Floats) -> Floats:
        outcomes = self._simulate(self.host(*x.tolist()), None)
        return np.array([outcome.tpot_error for outcome in outcomes])

    def _ttft_s(self, host: HostWork, occupying_s: float, latency_s: float) -> Floats:
        outcomes = self._simulate(host, (occupying_s, latency_s))
        return np.array([outcome.ttft_s for outcome in outcomes])

    def _simulate(self, host: HostWork, api: tuple[float, float] | None) -> Iterator[Outcome]:
        def profile(row: SiliconRow) -> Profile:
            found = self._profiles[setup_of(row)]
            if api is None:
                return found
            server = {"per_request_s": api[0], "latency_s": api[1]}
            return found.model_copy(
                update={"api_server": found.api_server.model_copy(update=server)}
            )

        profiles = [profile(row) for row in self.rows]
        hosts = [host] * len(self.rows)
        return self._pool.map(simulate_row, self.rows, profiles, hosts, chunksize=2)


def _robust_step(jacobian: Floats, residual: Floats) -> Floats:
    """The step that leaves the least sum of absolute errors, by reweighted least squares."""
    step = np.zeros(jacobian.shape[1])
    for _ in range(_REWEIGHTINGS):
        left = np.abs(residual + jacobian @ step)
        root = 1.0 / np.sqrt(np.maximum(left, _SMALL_ERROR))
        scale = np.linalg.norm(jacobian, axis=0)
        rows = jacobian / scale * root[:, None]
        step = -np.linalg.lstsq(rows, residual * root, rcond=None)[0] / scale
    return step


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2.0)])


def rows_to_fit() -> tuple[list[SiliconRow], dict[Setup, Profile]]:
    """The runs of the protocol, and the profiles of their set-ups.

    Raises:
        InputError: the extra is not installed.
    """
    rows = [row for row in read_silicon().usable if row.may_be_fitted]
    profiles = {setup: fit_setup(row) for setup, row in {setup_of(r): r for r in rows}.items()}
    large_enough = [
        row for row in rows if not is_kv_limited(row, engine_settings(row, profiles[setup_of(row)]))
    ]
    return large_enough, profiles


def main() -> None:
    """Prints all fits; takes some minutes."""
    rows, profiles = rows_to_fit()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for version in dict.fromkeys(row.engine_version for row in rows):
            of_version = [row for row in rows if row.engine_version == version]
            runs = OverheadFit(of_version, profiles, pool)
            first = of_version[0]
            found = runs.fit_host()
            print(f"vLLM {version} {first.mode}, {first.model.name}: {_host_text(found)}")
            for size in FITTED_TENSOR_PARALLEL_SIZES:
                others, these = runs.without(size)
                part = others.fit_host()
                print(f"  without TP{size}: {_host_text(part)}; {these.host_errors(part.values)}")
            host = runs.host(*found.values)
            for occupying_s in OCCUPYING_S:
                fit = runs.fit_latency(host, occupying_s)
                print(
                    f"  API server: {occupying_s * 1e3:g} ms a request occupying, latency "
                    f"{fit.values[1] * 1e3:.1f} ms: {fit}"
                )


def _host_text(fit: Fit) -> str:
    a_s, b_s = fit.values
    return f"{a_s * 1e3:.3f} ms + {b_s * 1e6:.1f} us a sequence: {fit}"


if __name__ == "__main__":
    main()
