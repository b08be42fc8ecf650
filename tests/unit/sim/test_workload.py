"""From a trace's columns to requests: the scenario's rules for what traces leave open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invariants.fleets import small_fleet

from fleetsim.sim.request import Journey
from fleetsim.sim.workload import Workload
from fleetsim.traces import Trace, TraceMetadata, build_segments, load_trace

CONTEXT = 1024


def _journeys(folder: Path, rows: list[dict[str, Any]], **sections: Any) -> list[Journey]:
    scenario = small_fleet(folder, rows, engine={"max_model_len": CONTEXT}, **sections)
    trace = load_trace(folder / "trace.csv")
    return list(Workload(trace, build_segments(trace), scenario, lambda model: CONTEXT))


def _row(prompt: int, output: int, **other: Any) -> dict[str, Any]:
    return {"arrival_s": 0.0, "prompt_tokens": prompt, "output_tokens": output, **other}


@pytest.mark.parametrize(
    ("rule", "asked", "makes", "capped"),
    [
        ("context", [924, 1014, 24], [50, 7, 24], [False, False, True]),
        ("output", [50, 7, 90], [50, 7, 24], [True, True, True]),
        (30, [30, 30, 30], [30, 7, 24], [True, False, True]),
    ],
)
def test_max_tokens_where_the_trace_states_none(
    tmp_path: Path, rule: Any, asked: list[int], makes: list[int], capped: list[bool]
) -> None:
    rows = [_row(100, 50), _row(10, 7), _row(1000, 90)]
    journeys = _journeys(tmp_path, rows, workload={"max_tokens": rule})
    assert [j.request.max_tokens for j in journeys] == asked
    assert [j.output_tokens for j in journeys] == makes
    assert [j.capped for j in journeys] == capped


def test_what_the_trace_states_stands(tmp_path: Path) -> None:
    rows = [
        _row(100, 50, max_tokens=20),
        _row(100, 50, max_tokens=200),
        _row(100, 50, max_tokens=""),
    ]
    journeys = _journeys(tmp_path, rows, workload={"max_tokens": 77})
    assert [j.request.max_tokens for j in journeys] == [20, 200, 77]
    assert [j.output_tokens for j in journeys] == [20, 50, 50]
    assert [j.stops_at_length for j in journeys] == [True, False, False]


def test_stop_by_length_goes_on_to_max_tokens(tmp_path: Path) -> None:
    rows = [_row(100, 50, max_tokens=200), _row(1000, 50, max_tokens=200)]
    journeys = _journeys(tmp_path, rows, workload={"stop": "length"})
    assert [j.output_tokens for j in journeys] == [200, 24]
    assert all(j.capped and j.stops_at_length for j in journeys)


def test_the_gateways_cap_bounds_what_is_not_stated(tmp_path: Path) -> None:
    rows = [_row(100, 500, max_tokens=900), _row(100, 500, max_tokens="")]
    journeys = _journeys(tmp_path, rows, gateway={"max_tokens_cap": 64})
    assert [j.request.max_tokens for j in journeys] == [900, 64]
    assert journeys[1].output_tokens == 64


def test_a_prompt_cut_to_fit_keeps_the_whole_segments_before_the_cut(tmp_path: Path) -> None:
    rows = [
        _row(600, 5, block_ids=list(range(6)), block_tokens=100),
        _row(2000, 5, block_ids=[*range(6), *range(50, 64)], block_tokens=100),
        _row(2000, 5, block_ids=[*range(6), *range(70, 84)], block_tokens=100),
    ]
    journeys = _journeys(tmp_path, rows, workload={"over_length": "truncate"})
    assert [j.request.prompt_tokens for j in journeys] == [600, 1023, 1023]
    assert len(journeys[0].request.prefix) == 1
    assert journeys[1].request.prefix == journeys[2].request.prefix == journeys[0].request.prefix
    assert [j.output_tokens for j in journeys] == [5, 1, 1]


def test_labels_and_what_is_missing(tmp_path: Path) -> None:
    rows = [
        _row(10, 1, tenant="a", session="s", slo_class="gold", adapter="x", priority=3),
        _row(10, 1, tenant="", session="", slo_class="", adapter="", priority=""),
    ]
    first, second = (j.request for j in _journeys(tmp_path, rows))
    assert (first.tenant, first.session, first.slo_class, first.priority) == ("a", "s", "gold", 3)
    assert (second.tenant, second.session, second.slo_class, second.priority) == ("", None, None, 0)
    assert (first.adapter, second.adapter) == ("x", "")
    assert (first.model, first.prefix, first.attempt) == ("", (), 0)


def test_no_policy_can_see_the_true_output_length(tmp_path: Path) -> None:
    journey = _journeys(tmp_path, [_row(10, 321)])[0]
    seen = {name: getattr(journey.request, name) for name in journey.request.__slots__}
    assert 321 not in seen.values()
    assert not any("output" in name for name in seen)


def test_more_requests_than_one_portion(tmp_path: Path) -> None:
    """They are made in portions; nothing shows where one ends."""
    n = 20_011
    prompts = np.arange(1, n + 1, dtype=np.int32) % 900 + 1
    trace = Trace(
        arrival_s=np.arange(n) * 0.5,
        prompt_tokens=prompts,
        output_tokens=prompts % 50 + 1,
        source_row=np.arange(n),
        metadata=TraceMetadata(source_name="t", rows_read=n, rows_kept=n),
    )
    scenario = small_fleet(tmp_path, [_row(1, 1)])
    workload = Workload(trace, None, scenario, lambda model: CONTEXT)
    assert len(workload) == n
    for _ in range(2):  # every pass makes fresh ones
        journeys = list(workload)
        assert [j.request.request_id for j in journeys] == list(range(n))
        assert [j.request.prompt_tokens for j in journeys] == prompts.tolist()
        assert [j.request.arrival_s for j in journeys] == trace.arrival_s.tolist()
    assert journeys[0] is not next(iter(workload))
