"""Arrival processes of synthetic traces."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray

Gaps = Literal["gamma", "weibull"]


def unit_gaps(law: Gaps, cv: float, count: int, random: np.random.Generator) -> FloatArray:
    """Draw gaps of mean 1.

    Args:
        law: Gamma or Weibull; with a CV of 1 both are exponential, and the process Poisson.
        cv: coefficient of variation.
        count: how many.
        random: the stream to draw from.

    Raises:
        InputError: a CV that is not a positive number, or beyond what Weibull gaps can have.
    """
    _check_cv(cv)
    if law == "gamma":
        return random.standard_gamma(cv**-2, count) * cv**2
    shape = weibull_shape(cv)
    return random.weibull(shape, count) / math.gamma(1 + 1 / shape)


def unit_wait(law: Gaps, cv: float, random: np.random.Generator) -> float:
    """Draw the time to the next arrival for someone who comes at a random time.

    In gaps of mean 1: a gap is met in proportion to its length, at a uniform place of it.

    Raises:
        InputError: as :func:`unit_gaps`.
    """
    _check_cv(cv)
    if law == "gamma":
        gap = random.standard_gamma(cv**-2 + 1) * cv**2
    else:
        shape = weibull_shape(cv)
        # x**shape of a Weibull x is exponential, and Gamma when x is weighted by its length
        gap = random.standard_gamma(1 + 1 / shape) ** (1 / shape) / math.gamma(1 + 1 / shape)
    return float(gap * random.random())


def weibull_shape(cv: float) -> float:
    """Solve for the shape of a Weibull law with a given coefficient of variation.

    Raises:
        InputError: a CV outside 0.01 to 100, where the law degenerates.
    """
    if not 0.01 <= cv <= 100:
        raise InputError(f"cv {cv:g}: Weibull gaps need one from 0.01 to 100")
    low, high = math.log(0.05), math.log(200.0)  # of the shape; the CV falls as it rises
    wanted = math.log1p(cv**2)
    for _ in range(100):
        shape = math.exp((low + high) / 2)
        if math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape) > wanted:
            low = math.log(shape)
        else:
            high = math.log(shape)
    return shape


def _check_cv(cv: float) -> None:
    if not (math.isfinite(cv) and cv > 0):
        raise InputError(f"cv {cv}: must be a positive number; 1 is Poisson")


def gamma_arrivals(
    count: int, rate_rps: float, burstiness: float, random: np.random.Generator
) -> FloatArray:
    """Draw arrival times of a renewal process with Gamma gaps; the first is at 0.

    As in ``vllm bench serve``: ``burstiness`` is the shape of the Gamma distribution, so the gaps
    have a coefficient of variation of 1/sqrt(burstiness): 1 is a Poisson process, less is burstier.
    Unlike there, the times are not rescaled to end exactly at count / rate, which would take away
    the chance fluctuation of the rate.

    Args:
        count: number of requests.
        rate_rps: mean requests per second; ``inf`` lets all arrive at 0.
        burstiness: shape of the Gamma distribution.
        random: the stream to draw from.

    Raises:
        InputError: a count below 1, a rate or burstiness that is not positive.
    """
    if count < 1:
        raise InputError(f"requests {count}: must be at least 1")
    if not rate_rps > 0:
        raise InputError(f"rate_rps {rate_rps}: must be above 0, or inf for all at once")
    if not (burstiness > 0 and math.isfinite(burstiness)):
        raise InputError(f"burstiness {burstiness}: must be a positive number; 1 is Poisson")
    # unit-mean gaps first: another rate stretches the same pattern
    gaps = random.standard_gamma(burstiness, count - 1) / burstiness
    return np.concatenate([[0.0], np.cumsum(gaps)]) / rate_rps
