"""A trace in numbers."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleetsim.traces import (
    Categorical,
    InputError,
    Trace,
    TraceMetadata,
    load_sample,
    load_trace,
    synthesize,
    trace_stats,
)
from fleetsim.traces.dispersion import index_of_dispersion


def test_dispersion_by_hand() -> None:
    # windows of 2 s: 3, 0, 1 arrivals; the one from 6 on is cut short and left out
    arrivals = np.array([0.0, 0.5, 1.9, 4.0, 6.5])
    assert index_of_dispersion(arrivals, 2) == pytest.approx((14 / 9) / (4 / 3))
    assert math.isnan(index_of_dispersion(arrivals, 6))
    for wrong in (0, -1, math.inf, math.nan):
        with pytest.raises(InputError, match="positive"):
            index_of_dispersion(arrivals, wrong)


def test_dispersion_of_a_poisson_process_is_one() -> None:
    trace = synthesize(requests=50_000, rate_rps=10, prompt_tokens=1, output_tokens=1, seed=1)
    for window_s in (1, 10):
        assert index_of_dispersion(trace.arrival_s, window_s) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(
    ("file", "indices"),
    [
        ("azure_2023/AzureLLMInferenceTrace_code.csv", ["13.2", "71.6", "164"]),
        ("azure_2023/AzureLLMInferenceTrace_conv.csv", ["1.39", "3.86", "16.1"]),
        ("mooncake_fast25/conversation_trace.jsonl.gz", ["7.9", "2.1", "2.89"]),
    ],
)
def test_dispersion_of_published_traces(shared_dir: Path, file: str, indices: list[str]) -> None:
    dispersion = trace_stats(load_trace(shared_dir / "traces" / file)).dispersion
    assert [f"{dispersion[window]:.3g}" for window in (1, 10, 60)] == indices


def test_sessions_think_times_and_stamps_by_hand() -> None:
    trace = Trace(
        arrival_s=np.array([0.0, 0.0, 3.0, 4.0, 9.0]),
        prompt_tokens=np.array([1, 2, 3, 4, 100], np.int32),
        output_tokens=np.ones(5, np.int32),
        source_row=np.arange(5),
        metadata=TraceMetadata("test", 5, 5),
        session=Categorical.from_values(["a", "b", "a", None, "a"]),
        parent=np.array([-1, -1, 0, -1, 2]),
        think_s=np.array([np.nan, np.nan, 2.0, np.nan, 4.0]),
    )
    stats = trace_stats(trace)
    assert stats.shared_stamp_share == 0.4
    assert stats.sessions is not None
    assert (stats.sessions.sessions, stats.sessions.requests) == (2, 4)
    assert (stats.sessions.turns_mean, stats.sessions.turns_max) == (2.0, 3)
    assert stats.sessions.gap_p50_s == 4.5  # 3 and 6
    assert stats.think is not None
    assert (stats.think.requests, stats.think.p50_s) == (2, 3.0)
    assert (stats.prompt_tokens.p50, stats.prompt_tokens.p90) == (3.0, pytest.approx(61.6))
    bare = trace_stats(replace(trace, session=None, parent=None, think_s=None))
    assert bare.sessions is None
    assert bare.think is None


def test_sessions_of_the_sample() -> None:
    sessions = trace_stats(load_sample()).sessions
    assert sessions is not None
    assert sessions.requests == len(load_sample())
