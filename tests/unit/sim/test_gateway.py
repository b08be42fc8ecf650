"""The gateway through whole simulations: timelines of limits worked out by hand.

One replica, steps of 10 ms, nothing else takes time: a request of n output tokens is served in
n * 10 ms, if it is alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from invariants.fleets import check_conservation, small_fleet, write_profile

from fleetsim.calibration import StepCostParameters
from fleetsim.sim.results.result import Result
from fleetsim.sim.simulate import simulate
from fleetsim.traces import InputError

BUCKET = {"policy": "token_bucket", "tokens_per_minute": 6000, "burst_tokens": 1000}
"""100 tokens a second, 1,000 at most, full at the start."""


def _run(folder: Path, rows: list[dict[str, Any]], **sections: Any) -> Result:
    """Rows as (arrival_s, prompt_tokens, output_tokens, max_tokens[, tenant])."""
    profile = write_profile(folder, step_cost=StepCostParameters(constant_s=0.01))
    engine = {
        "async_scheduling": False,
        "num_gpu_blocks_override": 1001,
        **sections.pop("engine", {}),
    }
    result = simulate(small_fleet(folder, rows, profile=profile, engine=engine, **sections))
    check_conservation(result)
    return result


def _row(
    arrival_s: float, prompt: int, output: int, max_tokens: int | str = "", tenant: str = "a"
) -> dict[str, Any]:
    return {
        "arrival_s": arrival_s,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "max_tokens": max_tokens,
        "tenant": tenant,
    }


def _limited(*limits: dict[str, Any], tenant: str = "*") -> dict[str, Any]:
    return {"tenants": {tenant: {"limits": list(limits)}}}


def _answers(result: Result) -> list[str]:
    requests = result.requests()
    return list(requests["outcome"].where(requests["reason"] == "", requests["reason"]))


# -- tokens per minute ---------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "answer"), [(250, "completed"), (251, "rate_limit_tokens")])
def test_a_completed_request_gives_back_what_it_did_not_use(
    tmp_path: Path, last: int, answer: str
) -> None:
    """0 s: 500 of 1,000 reserved. 0.5 s: ended with 350 used, 150 back. 1.0 s: 750 are there."""
    rows = [_row(0.0, 300, 50, 200), _row(1.0, 500, 10, last)]
    result = _run(tmp_path, rows, gateway=_limited(BUCKET))
    assert _answers(result) == ["completed", answer]
    assert result.requests()["ended_s"][0] == pytest.approx(0.5)


@pytest.mark.parametrize(("last", "answer"), [(100, "completed"), (101, "rate_limit_tokens")])
def test_until_it_ends_its_whole_estimate_is_reserved(
    tmp_path: Path, last: int, answer: str
) -> None:
    """0 s: 700 of 1,000 reserved until 2 s. 1 s: 300 + 100 are there."""
    rows = [_row(0.0, 300, 200, 400), _row(1.0, 300, 10, last)]
    assert _answers(_run(tmp_path, rows, gateway=_limited(BUCKET))) == ["completed", answer]


def test_a_refused_request_takes_nothing(tmp_path: Path) -> None:
    """1 s: 600 are there and 601 are refused; a moment later 600 are granted."""
    rows = [_row(0.0, 300, 200, 200), _row(1.0, 400, 9, 201), _row(1.0, 400, 9, 200)]
    assert _answers(_run(tmp_path, rows, gateway=_limited(BUCKET))) == [
        "completed",
        "rate_limit_tokens",
        "completed",
    ]


def test_the_bucket_holds_no_more_than_its_burst(tmp_path: Path) -> None:
    rows = [_row(0.0, 10, 1, 10), _row(1000.0, 500, 10, 500), _row(1000.0, 1, 1, 1)]
    assert _answers(_run(tmp_path, rows, gateway=_limited(BUCKET))) == [
        "completed",
        "completed",
        "rate_limit_tokens",
    ]


@pytest.mark.parametrize(("last", "answer"), [(200, "completed"), (201, "rate_limit_tokens")])
def test_a_request_that_the_router_refuses_gives_all_back(
    tmp_path: Path, last: int, answer: str
) -> None:
    """600 reserved, the context is too short, all 600 back: 1,000 are there, less 700."""
    rows = [_row(0.0, 500, 50, 100), _row(0.0, 400, 20, 300), _row(0.0, 100, 20, last)]
    result = _run(tmp_path, rows, engine={"max_model_len": 450}, gateway=_limited(BUCKET))
    assert _answers(result) == ["context_length", "completed", answer]


@pytest.mark.parametrize(("last", "answer"), [(99, "completed"), (100, "rate_limit_tokens")])
def test_a_request_that_admission_refuses_gives_all_back(
    tmp_path: Path, last: int, answer: str
) -> None:
    """The long prompt's 700 come back at once: 1,000 are there, less 900."""
    rows = [_row(0.0, 600, 10, 100), _row(0.0, 100, 10, 800), _row(0.0, 1, 1, last)]
    admission = {"policy": "predictive_ttft", "slo_ttft_s": 1.0, "prefill_tok_per_s": 500.0}
    result = _run(tmp_path, rows, gateway=_limited(BUCKET), router={"admission": admission})
    assert _answers(result) == ["prefill_exceeds_slo", "completed", answer]


@pytest.mark.parametrize(("last", "answer"), [(380, "completed"), (381, "rate_limit_tokens")])
def test_a_cancelled_request_pays_for_what_it_got(tmp_path: Path, last: int, answer: str) -> None:
    """0 s: 800 of 1,000 reserved. 0.205 s: given up after 20 tokens, so 320 were used and 480 come
    back to 220.5. 1 s: 780 are there.
    """
    rows = [_row(0.0, 300, 400, 500), _row(1.0, 400, 10, last)]
    result = _run(tmp_path, rows, gateway=_limited(BUCKET), client={"timeout_s": 0.205})
    assert _answers(result) == ["timeout", answer]
    requests = result.requests()
    assert requests["ended_s"][0] == pytest.approx(0.205)
    assert requests["delivered_tokens"][0] == 20


def test_each_tenant_without_an_entry_has_a_bucket_of_its_own(tmp_path: Path) -> None:
    rows = [
        _row(0.0, 500, 10, 500, "a"),
        _row(0.0, 500, 10, 500, "b"),
        _row(0.0, 500, 10, 500, "c"),
        _row(0.0, 500, 10, 500, "b"),
    ]
    gateway = {
        "tenants": {
            "*": {"limits": [BUCKET]},
            "c": {"limits": [{"policy": "unlimited"}]},
        }
    }
    assert _answers(_run(tmp_path, rows, gateway=gateway)) == [
        "completed",
        "completed",
        "completed",
        "rate_limit_tokens",
    ]


def test_a_tenant_that_no_entry_covers_is_free(tmp_path: Path) -> None:
    rows = [_row(0.0, 500, 10, 500, "b")] * 5
    assert _answers(_run(tmp_path, rows, gateway=_limited(BUCKET, tenant="a"))) == ["completed"] * 5


# -- several limits ------------------------------------------------------------------------------


def test_what_the_second_limit_refuses_the_first_gets_back(tmp_path: Path) -> None:
    """One at a time; the one that was refused for that leaves 400 in the bucket, not 0."""
    rows = [_row(0.0, 300, 50, 300), _row(0.1, 300, 9, 100), _row(0.6, 300, 9, 250)]
    one = {"policy": "concurrency", "max_in_flight": 1}
    result = _run(tmp_path, rows, gateway=_limited(BUCKET, one))
    # 400 + 60, and 250 back at 0.5 s: 710
    assert _answers(result) == ["completed", "concurrency_limit", "completed"]


@pytest.mark.parametrize(
    "end", [{"output": 5}, {"timeout_s": 0.055}, {"max_model_len": 100, "max_tokens": "output"}]
)
def test_a_place_is_free_again_however_a_request_ends(tmp_path: Path, end: dict[str, Any]) -> None:
    rows = [_row(i / 10, 200, end.get("output", 8), 20) for i in range(4)]
    one = {"policy": "concurrency", "max_in_flight": 1}
    sections: dict[str, Any] = {"gateway": _limited(one)}
    if "timeout_s" in end:
        sections["client"] = {"timeout_s": end["timeout_s"]}
    if "max_model_len" in end:
        sections["engine"] = {"max_model_len": end["max_model_len"]}
    answers = set(_answers(_run(tmp_path, rows, **sections)))
    assert len(answers) == 1
    assert "concurrency_limit" not in answers


def test_requests_per_minute(tmp_path: Path) -> None:
    """Two at once, then one a second."""
    limit = {"policy": "requests_per_minute", "requests_per_minute": 60, "burst_requests": 2}
    rows = [_row(t, 10, 1, 1) for t in (0.0, 0.0, 0.0, 0.5, 1.0, 1.5, 2.0)]
    assert _answers(_run(tmp_path, rows, gateway=_limited(limit))) == [
        "completed",
        "completed",
        "rate_limit_requests",
        "rate_limit_requests",
        "completed",
        "rate_limit_requests",
        "completed",
    ]


# -- workers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "leaves"),
    [
        (1, [0.1, 0.2, 0.3, 0.4, 0.6, 0.7]),
        (2, [0.1, 0.1, 0.2, 0.2, 0.6, 0.6]),
        (3, [0.1, 0.1, 0.1, 0.2, 0.6, 0.6]),
        (9, [0.1, 0.1, 0.1, 0.15, 0.6, 0.6]),
    ],
)
def test_workers_are_an_m_d_c_queue(tmp_path: Path, workers: int, leaves: list[float]) -> None:
    rows = [_row(t, 10, 1) for t in (0.0, 0.0, 0.0, 0.05, 0.5, 0.5)]
    result = _run(tmp_path, rows, gateway={"service_s": 0.1, "workers": workers})
    requests = result.requests()
    assert requests["dispatched_s"].tolist() == pytest.approx(leaves)
    assert requests["arrived_s"].tolist() == [row["arrival_s"] for row in rows]
    gateway_s = (requests["dispatched_s"] - requests["arrived_s"]).mean()
    assert result.summary["phases_mean_s"]["gateway_s"] == pytest.approx(gateway_s)


def test_who_gives_up_in_the_gateways_queue_is_not_sent_on(tmp_path: Path) -> None:
    rows = [_row(0.0, 10, 1) for _ in range(4)]
    result = _run(
        tmp_path, rows, gateway={"service_s": 0.1, "workers": 1}, client={"timeout_s": 0.25}
    )
    requests = result.requests()
    assert _answers(result) == ["completed", "completed", "timeout", "timeout"]
    assert requests["dispatched_s"].notna().tolist() == [True, True, False, False]
    assert requests["ended_s"].tolist() == pytest.approx([0.11, 0.21, 0.25, 0.25])


# -- validation and metering ---------------------------------------------------------------------


def test_a_request_that_asks_for_too_much_is_refused(tmp_path: Path) -> None:
    rows = [_row(0.0, 10, 5, 100), _row(0.0, 10, 5, 101), _row(0.0, 10, 500)]
    result = _run(tmp_path, rows, gateway={"max_tokens_cap": 100})
    assert _answers(result) == ["completed", "max_tokens_cap", "completed"]
    requests = result.requests()
    assert requests["max_tokens"].tolist() == [100, 101, 100]
    assert requests["delivered_tokens"].tolist() == [5, 0, 100]
    assert requests["finish_reason"].tolist() == ["stop", "", "length"]


def test_usage_by_hand(tmp_path: Path) -> None:
    rows = [
        _row(0.0, 100, 10, 20, "b"),
        _row(1.0, 200, 30, 30, "a"),
        _row(2.0, 50, 400, 500, "b"),
        _row(3.0, 2000, 5, 5, "b"),
        _row(4.0, 7, 5, 900, "a"),
    ]
    result = _run(tmp_path, rows, gateway={"max_tokens_cap": 800}, client={"timeout_s": 0.5})
    expected = pd.DataFrame(
        {
            "tenant": ["a", "b"],
            "requests": [2, 3],
            "rejected": [1, 1],
            "prompt_tokens": [200, 150],
            "completion_tokens": [30, 10 + 50],
        }
    )
    pd.testing.assert_frame_equal(result.usage(), expected, check_dtype=False)


def test_a_bucket_that_no_request_fits_is_an_error_before_the_run(tmp_path: Path) -> None:
    rows = [_row(0.0, 900, 10, 200), _row(1.0, 950, 10, 200, "b")]
    with pytest.raises(InputError) as refused:
        _run(tmp_path, rows, gateway=_limited(BUCKET))
    message = str(refused.value)
    assert "\n" not in message
    for word in ("gateway.tenants.*.limits", "1000", "1100", "burst_tokens"):
        assert word in message, word


def test_one_that_only_some_requests_fit_refuses_those_with_a_reason_of_their_own(
    tmp_path: Path,
) -> None:
    rows = [_row(0.0, 900, 10, 200), _row(1.0, 100, 10, 200)]
    assert _answers(_run(tmp_path, rows, gateway=_limited(BUCKET))) == [
        "exceeds_burst",
        "completed",
    ]
