"""Synthetic traces: distributions, and streams that leave each other alone."""

import math

import numpy as np
import pytest

from fleetsim.traces import (
    FixedLength,
    InputError,
    LognormalLength,
    Trace,
    UniformLength,
    synthesize,
    trace_stats,
)


def make(**changes: object) -> Trace:
    arguments: dict[str, object] = {
        "requests": 1000,
        "rate_rps": 10.0,
        "prompt_tokens": 800,
        "output_tokens": 200,
        "seed": 1,
    }
    return synthesize(**{**arguments, **changes})  # type: ignore[arg-type]


def test_fixed_lengths() -> None:
    trace = make(max_tokens=200)
    assert (trace.prompt_tokens == 800).all()
    assert (trace.output_tokens == 200).all()
    assert trace.max_tokens is not None
    assert (trace.max_tokens == 200).all()
    assert (trace.metadata.rows_read, trace.metadata.source_name) == (1000, "synthetic")
    assert trace.metadata.transforms[0]["seed"] == 1


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_rate_and_variation_asked_for(burstiness: float) -> None:
    stats = trace_stats(make(requests=20_000, burstiness=burstiness))
    cv = 1 / math.sqrt(burstiness)
    # five standard errors of the mean and of the CV
    assert stats.rate_rps == pytest.approx(10, rel=5 * cv / math.sqrt(20_000))
    assert stats.interarrival_cv == pytest.approx(cv, rel=0.06)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(make(requests=20_001).arrival_s) * 10
    for beyond in (0.5, 1.0, 3.0):
        share = math.exp(-beyond)
        error = math.sqrt(share * (1 - share) / 20_000)
        assert (gaps > beyond).mean() == pytest.approx(share, abs=4 * error)


def test_all_at_once() -> None:
    trace = make(rate_rps=math.inf)
    assert (trace.arrival_s == 0).all()
    assert math.isnan(trace_stats(trace).rate_rps)
    assert len(make(requests=1)) == 1


def test_uniform_lengths_cover_their_range_inclusively() -> None:
    lengths = make(requests=5000, prompt_tokens=UniformLength.around(100, 0.055)).prompt_tokens
    assert (lengths.min(), lengths.max()) == (94, 106)  # floor(94.5), ceil(105.5)
    counts = np.bincount(lengths)[94:]
    assert counts.min() > 0.7 * counts.max()
    assert make(prompt_tokens=UniformLength.around(1, 0.9)).prompt_tokens.min() == 1


def test_lognormal_lengths_have_their_median_and_mean() -> None:
    lengths = make(requests=50_000, prompt_tokens=LognormalLength(129, 211, 10**6)).prompt_tokens
    assert np.median(lengths) == pytest.approx(129, rel=0.02)
    assert lengths.mean() == pytest.approx(211, rel=0.03)
    cut = make(requests=5000, prompt_tokens=LognormalLength(129, 211, 300)).prompt_tokens
    assert cut.max() == 300


def test_streams_are_independent() -> None:
    base = make(
        prompt_tokens=UniformLength.around(800, 0.5), output_tokens=UniformLength.around(200, 0.5)
    )
    other = make(prompt_tokens=LognormalLength(800, 900, 9000), output_tokens=base_output())
    assert (other.arrival_s == base.arrival_s).all()
    assert (other.output_tokens == base.output_tokens).all()
    twice = make(prompt_tokens=UniformLength.around(800, 0.5), rate_rps=20.0, burstiness=1.0)
    assert np.allclose(twice.arrival_s * 2, base.arrival_s)
    assert (twice.prompt_tokens == base.prompt_tokens).all()
    correlation = np.corrcoef(base.prompt_tokens, base.output_tokens)[0, 1]
    assert abs(correlation) < 4 / math.sqrt(1000)


def base_output() -> UniformLength:
    return UniformLength.around(200, 0.5)


def test_more_requests_extend_the_same_trace() -> None:
    short = make(requests=100, prompt_tokens=UniformLength.around(800, 0.5))
    longer = make(requests=300, prompt_tokens=UniformLength.around(800, 0.5))
    assert (longer.arrival_s[:100] == short.arrival_s).all()
    assert (longer.prompt_tokens[:100] == short.prompt_tokens).all()


def test_seeds_differ_and_repeat() -> None:
    assert make(seed=1).content_hash() == make(seed=1).content_hash()
    assert make(seed=1).content_hash() != make(seed=2).content_hash()
    assert len(make(seed=2**64 - 1)) == 1000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": 0}, "requests 0: must be at least 1"),
        ({"rate_rps": 0.0}, "rate_rps 0.0: must be above 0"),
        ({"rate_rps": float("nan")}, "rate_rps nan: must be above 0"),
        ({"burstiness": 0.0}, "burstiness 0.0: must be a positive number; 1 is Poisson"),
        ({"seed": -1}, "seed -1: must be a whole number from 0"),
        ({"seed": 2**64}, "must be a whole number from 0 to"),
        ({"prompt_tokens": 0}, "length 0: must be at least 1 token"),
        ({"prompt_tokens": 2**31}, "prompt_tokens: FixedLength.* must give lengths between 1 and"),
        ({"max_tokens": 0}, "max_tokens 0: must be at least 1"),
    ],
)
def test_parameters_out_of_range(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**changes)


def test_lengths_out_of_range() -> None:
    for wrong in (
        lambda: FixedLength(0),
        lambda: UniformLength.around(0, 0.5),
        lambda: UniformLength.around(10, 1.0),
        lambda: UniformLength.around(10, -0.1),
        lambda: UniformLength(0, 5),
        lambda: UniformLength(5, 4),
        lambda: LognormalLength(0, 5, 10),
        lambda: LognormalLength(10, 9, 10),
        lambda: LognormalLength(10, 12, 0),
    ):
        with pytest.raises(InputError, match="must"):
            wrong()
