"""Trust, or do not, or cannot tell: one number of a simulated fleet against the measured one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt

import numpy as np

from fleetsim.sim.backtest.fleet_series import Histogram, Ints
from fleetsim.sim.backtest.prometheus_dump import Floats
from fleetsim.sim.report.format import seconds

TRUST = "trust"
DO_NOT_TRUST = "do not trust"
CANNOT_TELL = "cannot tell"

# Student's t at 95 %, two-sided, by degrees of freedom: blocks less one.
_T95 = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


@dataclass(frozen=True, slots=True)
class Statistic:
    """One number, measured and simulated.

    Attributes:
        name: such as "mean" or "p99".
        measured, simulated: in the metric's unit; NaN where there is none.
        half_width: of the 95 % interval of their difference; NaN where it is not judged by one.
        tolerance: largest difference that is trusted, in the metric's unit.
        verdict: one of the three.
        reason: why, in words.
    """

    name: str
    measured: float
    simulated: float
    half_width: float
    tolerance: float
    verdict: str
    reason: str

    @property
    def error(self) -> float:
        """Simulated over measured, less 1; NaN where nothing was measured."""
        return self.simulated / self.measured - 1.0 if self.measured else nan


@dataclass(frozen=True, slots=True)
class Ratio:
    """A mean over the window as a ratio of sums, with the sums of each block of time.

    A mean latency is seconds over observations, a rate tokens over seconds, a hit rate hits over
    queries, the mean of a gauge its samples over their number.
    """

    sums: Floats
    weights: Floats

    @classmethod
    def of_totals(cls, totals: Floats, weights: Floats, edges: Ints) -> Ratio:
        """From totals that rise over the window's grid."""
        return cls(np.diff(totals[edges]), np.diff(weights[edges]))

    @classmethod
    def of_samples(cls, samples: Floats, edges: Ints) -> Ratio:
        """From a gauge's samples, NaN where one is missing; a block's last belongs to the next."""
        begins = edges[:-1]
        there = ~np.isnan(samples)
        inside = slice(None, edges[-1])
        return cls(
            np.add.reduceat(np.where(there, samples, 0.0)[inside], begins),
            np.add.reduceat(there.astype(np.float64)[inside], begins),
        )

    @property
    def mean(self) -> float:
        """Of the whole window; NaN where there is nothing to divide by."""
        weight = float(self.weights.sum())
        return float(self.sums.sum()) / weight if weight > 0 else nan

    @property
    def blocks(self) -> int:
        """How many blocks have anything in them."""
        return int((self.weights > 0).sum())

    def residuals(self) -> Floats:
        """How far each block pulls the mean away from where it is."""
        return (self.sums - self.mean * self.weights) / float(self.weights.mean())


def half_width(measured: Ratio, simulated: Ratio) -> float:
    """Of the 95 % interval of the means' difference; infinite with under five blocks.

    The blocks are paired: both fleets had the same arrivals, so what a busy block does to both
    does not count as noise. (Linearised ratio estimator, Student's t.)
    """
    blocks = min(measured.blocks, simulated.blocks)
    if blocks - 1 not in _T95:
        return inf
    pulls = simulated.residuals() - measured.residuals()
    return _T95[blocks - 1] * float(pulls.std(ddof=1)) / sqrt(len(pulls))


def judge_mean(
    measured: Ratio, simulated: Ratio, tolerance: float, floor: float, name: str = "mean"
) -> Statistic:
    """Whether the difference of two means, with its interval, lies within the tolerance.

    Wholly inside: trust. Wholly outside: do not. Across its border: cannot tell.

    Args:
        measured, simulated: the means.
        tolerance: relative to the measured one.
        floor: a difference that says nothing either way, in the metric's unit.
        name: of the statistic.
    """
    was, is_ = measured.mean, simulated.mean
    if not (isfinite(was) and isfinite(is_)):
        return Statistic(name, was, is_, nan, nan, CANNOT_TELL, "nothing was observed")
    allowed = tolerance * was
    half = half_width(measured, simulated)
    apart = abs(is_ - was)
    if not isfinite(half):
        verdict, reason = CANNOT_TELL, "under half of the window's blocks have observations"
    elif apart + half <= allowed:
        verdict, reason = TRUST, "within the tolerance, sampling error included"
    elif apart + half <= floor:
        verdict, reason = CANNOT_TELL, "outside the tolerance, but too small to judge by"
    elif apart - half > max(allowed, floor):
        verdict, reason = DO_NOT_TRUST, "outside the tolerance, beyond any sampling error"
    elif apart <= allowed:
        verdict, reason = CANNOT_TELL, "within the tolerance, but the sampling error is larger"
    else:
        verdict, reason = CANNOT_TELL, "outside the tolerance, but perhaps by sampling error"
    return Statistic(name, was, is_, half, allowed, verdict, reason)


def judge_quantile(
    measured: Histogram,
    simulated: Histogram,
    simulated_s: float,
    q: float,
    tolerance: float,
    edges: Ints,
) -> Statistic:
    """Whether a quantile agrees, as far as the measured buckets can tell.

    The measured one is known to lie in a bucket, and no closer. Do not trust: even the bucket's
    nearest end is further from the simulated one than the tolerance, and the shares of
    observations beyond that end differ by more than the sampling error. Trust: the whole bucket
    is within the tolerance.

    Args:
        measured, simulated: on the same buckets; the numbers shown are interpolated in them.
        simulated_s: the simulated quantile itself.
        q: which one, 0 to 1.
        tolerance: relative.
        edges: of the window's blocks.
    """
    name = f"p{q * 100:g}"
    count = min(measured.counts[-1], simulated.counts[-1])
    if count < 1:
        return Statistic(name, nan, nan, nan, nan, CANNOT_TELL, "nothing was observed")
    was, is_ = measured.quantile_s(q), simulated.quantile_s(q)
    bucket = measured.bucket(q)
    low_s, high_s = measured.edges_s(bucket)
    within = f"{seconds(low_s)} to {seconds(high_s)}" if isfinite(high_s) else f"> {seconds(low_s)}"
    said = f"measured in the bucket {within}, simulated {seconds(simulated_s)}"

    def answer(verdict: str, reason: str) -> Statistic:
        return Statistic(name, was, is_, nan, tolerance * was, verdict, reason)

    if count * (1.0 - q) < 10:
        return answer(CANNOT_TELL, f"{count:,.0f} observations leave under 10 beyond it")
    if high_s / simulated_s - 1.0 <= tolerance and 1.0 - low_s / simulated_s <= tolerance:
        return answer(TRUST, f"{said}: all of it within the tolerance")
    if low_s * (1.0 - tolerance) <= simulated_s <= high_s * (1.0 + tolerance):
        return answer(CANNOT_TELL, f"{said}: the bucket is wider than the tolerance")
    bound = bucket if simulated_s > high_s else bucket - 1
    shares = [
        Ratio.of_totals(h.cumulative[:, bound], h.counts, edges) for h in (measured, simulated)
    ]
    if abs(shares[1].mean - shares[0].mean) <= half_width(shares[0], shares[1]):
        return answer(CANNOT_TELL, f"{said}: perhaps by sampling error")
    return answer(DO_NOT_TRUST, said)


def judge_peak(measured: Floats, simulated: Floats, tolerance: float, floor: float) -> Statistic:
    """The p99 of a gauge over time: needs 200 scrapes, as it rests on one in a hundred of them."""
    there = ~(np.isnan(measured) | np.isnan(simulated))
    if not there.any():
        return Statistic("p99", nan, nan, nan, nan, CANNOT_TELL, "no samples")
    was, is_ = (float(np.percentile(values[there], 99)) for values in (measured, simulated))
    allowed = tolerance * was
    scrapes = int(there.sum())
    if scrapes < 200:
        verdict, reason = CANNOT_TELL, f"{scrapes} scrapes are too few for a p99 over time"
    elif abs(is_ - was) <= allowed:
        verdict, reason = TRUST, "within the tolerance"
    elif abs(is_ - was) <= floor:
        verdict, reason = CANNOT_TELL, "outside the tolerance, but too small to judge by"
    else:
        verdict, reason = DO_NOT_TRUST, "outside the tolerance"
    return Statistic("p99", was, is_, nan, allowed, verdict, reason)
