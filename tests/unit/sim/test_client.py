"""The clients: open loop, closed loop, and those who give up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invariants.fleets import check_conservation, run_both_ways, small_fleet, write_profile

from fleetsim.calibration import StepCostParameters
from fleetsim.sim.results.result import Result

TEN_MS = StepCostParameters(constant_s=0.01)


def _run(folder: Path, rows: list[dict[str, Any]], **sections: Any) -> Result:
    profile = write_profile(folder, step_cost=TEN_MS)
    engine = {"async_scheduling": False, **sections.pop("engine", {})}
    result = run_both_ways(small_fleet(folder, rows, profile=profile, engine=engine, **sections))
    check_conservation(result)
    return result


def _rows(times: list[float], prompt: int = 10, output: int = 10) -> list[dict[str, Any]]:
    return [{"arrival_s": t, "prompt_tokens": prompt, "output_tokens": output} for t in times]


# -- open loop -----------------------------------------------------------------------------------


def test_an_open_loop_sends_whether_or_not_anything_ends(tmp_path: Path) -> None:
    times = [0.0, 0.001, 0.002, 0.5, 0.5]
    result = _run(tmp_path, _rows(times, output=90), engine={"max_num_seqs": 1})
    requests = result.requests()
    assert requests["client_sent_s"].tolist() == times
    assert requests["arrived_s"].tolist() == times
    assert result.summary["latency"]["queue_s"]["p99"] > 2.0


def test_the_network_takes_its_time_both_ways(tmp_path: Path) -> None:
    result = _run(tmp_path, _rows([0.0, 1.0]), client={"network_delay_s": 0.05})
    requests = result.requests()
    assert requests["arrived_s"].tolist() == pytest.approx([0.05, 1.05])
    assert (requests["ended_s"] - requests["last_token_s"]).tolist() == pytest.approx([0.05] * 2)
    assert requests["client_ttft_s"].tolist() == pytest.approx([0.11] * 2)
    assert requests["gateway_ttft_s"].tolist() == pytest.approx([0.01] * 2)
    assert requests["e2e_s"].tolist() == pytest.approx([0.2] * 2)


def test_a_refusal_takes_the_way_back_too(tmp_path: Path) -> None:
    result = _run(
        tmp_path,
        _rows([0.0]),
        client={"network_delay_s": 0.05},
        router={"admission": {"policy": "reject_all"}},
    )
    assert result.requests()["ended_s"].tolist() == pytest.approx([0.1])


# -- closed loop ---------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 3, 8, 100])
def test_a_closed_loop_keeps_so_many_in_flight(tmp_path: Path, concurrency: int) -> None:
    result = _run(
        tmp_path,
        _rows([0.0] * 40, output=7),
        workload={"closed_loop": {"concurrency": concurrency}},
        client={"network_delay_s": 0.003},
    )
    requests = result.requests()
    sent, ended = requests["client_sent_s"].to_numpy(), requests["ended_s"].to_numpy()
    in_flight = [int(((sent <= t) & (t < ended)).sum()) for t in sent]
    assert max(in_flight) == min(concurrency, 40)
    # whenever one ends, the next is sent at that instant, until there is none left
    later = np.sort(sent)[min(concurrency, 40) :]
    assert np.allclose(later, np.sort(ended)[: len(later)])
    assert requests["arrival_s"].tolist() == sent.tolist()


def test_a_closed_loop_goes_on_after_refusals_and_cancels(tmp_path: Path) -> None:
    result = _run(
        tmp_path,
        _rows([0.0] * 30, prompt=200, output=30),
        workload={"closed_loop": {"concurrency": 4}},
        client={"network_delay_s": 0.001, "timeout_s": 0.25},
        engine={"max_model_len": 256, "num_gpu_blocks_override": 31, "max_num_seqs": 2},
    )
    assert result.summary["requests"]["arrived"] == 30
    assert result.summary["requests"]["cancelled"] > 0
    refused = _run(
        tmp_path,
        _rows([0.0] * 30),
        workload={"closed_loop": {"concurrency": 4}},
        client={"network_delay_s": 0.001},
        router={"admission": {"policy": "reject_all"}},
    )
    assert refused.summary["requests"]["rejected"] == 30
    assert refused.summary["run"]["end_s"] == pytest.approx(30 / 4 * 0.002, abs=0.003)


def test_a_closed_loop_never_finds_the_limit(tmp_path: Path) -> None:
    """It slows down with the fleet: in flight never grows, and the queue stays what it was."""
    slow = StepCostParameters(constant_s=0.2)
    profile = write_profile(tmp_path, "slow.json", step_cost=slow)
    results = [
        run_both_ways(
            small_fleet(
                tmp_path,
                _rows([0.0] * 60),
                workload={"closed_loop": {"concurrency": 6}},
                engine={"max_num_seqs": 4},
                profile=name,
            )
        )
        for name in (write_profile(tmp_path, step_cost=TEN_MS), profile)
    ]
    rates = [r.summary["rates"]["run_completed_per_s"] for r in results]
    assert rates[0] / rates[1] == pytest.approx(20, rel=1e-6)


# -- those who give up ---------------------------------------------------------------------------


def test_a_client_gives_up_so_long_after_it_sent(tmp_path: Path) -> None:
    result = _run(
        tmp_path,
        _rows([0.0, 0.0, 0.4], output=60),
        engine={"max_num_seqs": 1},
        client={"timeout_s": 0.75},
    )
    requests = result.requests()
    assert requests["outcome"].tolist() == ["completed", "cancelled", "cancelled"]
    assert requests["ended_s"].tolist() == pytest.approx([0.6, 0.75, 1.15])
    # the second was given its place at 0.6, the third when the second had gone
    assert requests["delivered_tokens"].tolist() == [60, 15, 40]
    assert requests["reason"].tolist() == ["", "timeout", "timeout"]


def test_an_answer_that_comes_in_time_is_kept(tmp_path: Path) -> None:
    """The deadline is for the last token at the client, to the instant."""
    for timeout_s, outcome in ((0.141, "completed"), (0.139, "cancelled")):
        result = _run(
            tmp_path,
            _rows([0.0], output=10),
            client={"timeout_s": timeout_s, "network_delay_s": 0.02},
        )
        requests = result.requests()
        assert requests["outcome"].tolist() == [outcome]
        assert requests["ended_s"][0] == pytest.approx(min(timeout_s, 0.14))


def test_what_a_client_no_longer_wants_makes_room(tmp_path: Path) -> None:
    rows = _rows([0.0, 0.2], output=90)
    begins = [
        _run(tmp_path, rows, engine={"max_num_seqs": 1}, client=client).requests()["scheduled_s"][1]
        for client in ({}, {"timeout_s": 0.305})
    ]
    assert begins == pytest.approx([0.9, 0.31])


def test_nobody_waits_for_ever_in_the_books(tmp_path: Path) -> None:
    """A horizon leaves those under way unfinished, with what they got until then."""
    result = _run(
        tmp_path,
        _rows([0.0, 0.2, 5.0], output=90),
        measurement={"horizon_s": 0.605},
    )
    requests = result.requests()
    assert requests["outcome"].tolist() == ["unfinished", "unfinished"]
    assert requests["ended_s"].isna().all()
    assert requests["delivered_tokens"].tolist() == [60, 40]
    assert result.summary["requests"]["arrived"] == 2
    assert result.summary["run"]["end_s"] == 0.605
