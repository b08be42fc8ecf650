"""A plain Poisson trace, and what tests of transforms measure of one."""

import numpy as np

from fleetsim.traces import Trace, UniformLength, synthesize, trace_stats


def poisson(requests: int = 20_000, rate_rps: float = 10.0) -> Trace:
    return synthesize(
        requests=requests,
        rate_rps=rate_rps,
        prompt_tokens=UniformLength(10, 100),
        output_tokens=UniformLength(1, 50),
        seed=7,
    )


def reuse(trace: Trace) -> float:
    share = trace_stats(trace).ideal_prefix_hit_share
    assert share is not None
    return share


def counts(trace: Trace, bins: int, end_s: float) -> np.ndarray:
    return np.histogram(trace.arrival_s, bins, (0, end_s))[0]
