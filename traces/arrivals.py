"""Arrival processes of synthetic traces."""

from __future__ import annotations

import math

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray


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
