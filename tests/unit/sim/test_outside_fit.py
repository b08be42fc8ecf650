"""What a run does beyond its profile's fit is counted, step by step, and said."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from invariants.fleets import run_both_ways, small_fleet, write_profile
from rich.console import Console

from fleetsim.calibration.profile import Validity
from fleetsim.sim.report.table import summary_table

ROW = {"arrival_s": 0.0, "prompt_tokens": 100, "output_tokens": 51}


@pytest.mark.parametrize(
    ("widest", "steps", "too_long"),
    [
        # 50 decode steps over 100 to 149 computed tokens, and one prefill of 100
        ({"max_kv_tokens": 129}, 20, 0),
        ({"max_step_tokens": 99}, 1, 0),
        ({"max_context_tokens": 150}, 0, 1),
        ({}, 0, 0),
    ],
)
def test_a_single_request(
    tmp_path: Path, widest: dict[str, int], steps: int, too_long: int
) -> None:
    limits = {
        "max_decodes": 1,  # narrower than max_num_seqs, so that somebody counts
        "max_step_tokens": 1000,
        "max_context_tokens": 1000,
        "max_kv_tokens": 10_000,
    }
    profile = write_profile(tmp_path, validity=Validity(**{**limits, **widest}))
    engine = {"async_scheduling": False}  # or one more step runs on past the stop token
    result = run_both_ways(small_fleet(tmp_path, [ROW], profile=profile, engine=engine))
    outside = result.summary["pools"]["p"]["outside_fit"]
    assert outside["steps"] == steps
    assert outside["share_of_steps"] == pytest.approx(steps / 51)
    assert outside["requests_too_long"] == too_long


def test_the_report_says_so(tmp_path: Path) -> None:
    narrow = Validity(
        max_decodes=1, max_step_tokens=1000, max_context_tokens=150, max_kv_tokens=129
    )
    profile = write_profile(tmp_path, validity=narrow, api_per_chunk_s=1.0)
    rows = [ROW, {**ROW, "arrival_s": 0.2}]
    result = run_both_ways(small_fleet(tmp_path, rows, profile=profile))
    printed = StringIO()
    Console(width=200, file=printed).print(summary_table(result))
    text = printed.getvalue()
    outside = result.summary["pools"]["p"]["outside_fit"]
    assert f"pool p: {outside['steps']} steps (" in text
    assert "2 requests were longer than those that profile profile was fitted to" in text
    assert "1 requests met an API server that streaming alone had saturated" in text
