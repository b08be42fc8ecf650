"""Sessions: a turn is sent some time after its client had the answer that it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invariants.fleets import STEP_S, check_conservation, run_both_ways, small_fleet

from fleetsim.sim.results.result import Result
from fleetsim.sim.simulate import simulate
from fleetsim.traces import InputError

TOKEN_S = 2.0**-17
"""A step of `small_fleet` takes STEP_S, and this for each of its tokens."""


def turn(arrival_s: float, session: str, number: int, think_s: Any = "", **other: Any) -> Any:
    return {
        "arrival_s": arrival_s,
        "prompt_tokens": 10,
        "output_tokens": 3,
        "session": session,
        "turn": number,
        "think_s": think_s,
        "parent_turn": "",
        "max_tokens": "",
        **other,
    }


def by_turn(result: Result) -> Any:
    return result.requests().sort_values("request_id").reset_index(drop=True)


def test_two_turns_by_hand(tmp_path: Path) -> None:
    rows = [turn(0.0, "a", 0), turn(1.0, "a", 1, 2.0, prompt_tokens=30)]
    result = run_both_ways(small_fleet(tmp_path, rows, client={"network_delay_s": 0.125}))
    first, second = by_turn(result).itertuples()
    # 10 prompt tokens in a step, then two steps of one token; the network each way
    ended_s = 0.125 + 3 * STEP_S + 12 * TOKEN_S + 0.125
    assert first.ended_s == ended_s
    assert second.arrival_s == second.client_sent_s == ended_s + 2.0
    assert second.arrived_s == ended_s + 2.0 + 0.125
    assert second.e2e_s == pytest.approx(0.25 + 3 * STEP_S + 32 * TOKEN_S, abs=1e-12)
    assert result.summary["requests"]["turns_not_issued"] == {}
    # the window ends with the last turn that was really sent, not when the trace had it
    assert result.summary["window"]["end_s"] == second.client_sent_s
    assert result.summary["window"]["offered"] == 2


def test_think_time_zero_is_at_once(tmp_path: Path) -> None:
    rows = [turn(0.0, "a", 0), turn(0.0, "a", 1, 0.0), turn(0.0, "a", 2, 0.0)]
    table = by_turn(run_both_ways(small_fleet(tmp_path, rows)))
    assert table["client_sent_s"][1] == table["ended_s"][0]
    assert table["client_sent_s"][2] == table["ended_s"][1]


def test_several_wait_for_one_and_a_turn_may_come_by_itself(tmp_path: Path) -> None:
    rows = [
        turn(0.0, "a", 0),
        turn(0.1, "b", 0),
        turn(1.0, "a", 1, 0.5),
        turn(1.0, "a", 2, 0.5, parent_turn=0),
        turn(1.0, "a", 3, 0.25, parent_turn=0),
        turn(7.0, "a", 4),  # at its own time
    ]
    table = by_turn(run_both_ways(small_fleet(tmp_path, rows)))
    end_s = table["ended_s"][0]
    expected = [0.0, 0.1, end_s + 0.5, end_s + 0.5, end_s + 0.25, 7.0]
    assert table["client_sent_s"].tolist() == expected


def test_nobody_answers_so_nobody_asks_on(tmp_path: Path) -> None:
    rows = [
        turn(0.0, "a", 0),
        turn(1.0, "a", 1, 1.0, prompt_tokens=1024),  # no room in the context: refused
        turn(2.0, "a", 2, 1.0),
        turn(3.0, "a", 3, 1.0, parent_turn=0),
        turn(4.0, "a", 4, 1.0, parent_turn=2),
        turn(5.0, "a", 5, 1.0, parent_turn=2),
        turn(6.0, "b", 0, output_tokens=400),  # gives up
        turn(7.0, "b", 1, 1.0),
        turn(8.0, "b", 2),
    ]
    result = run_both_ways(small_fleet(tmp_path, rows, client={"timeout_s": 0.5}))
    check_conservation(result)
    requests = result.summary["requests"]
    assert requests["turns_not_issued"] == {"parent_cancelled": 1, "parent_rejected": 3}
    assert requests["arrived"] == 5
    assert requests["rejected"] == requests["cancelled"] == 1
    assert sorted(result.requests()["request_id"]) == [0, 1, 3, 6, 8]


@pytest.mark.parametrize("horizon_s", [0.01, 2.0, 4.0])
def test_turns_that_the_horizon_cuts_off(tmp_path: Path, horizon_s: float) -> None:
    rows = [turn(0.0, "a", 0), *(turn(float(i), "a", i, 1.5) for i in range(1, 6))]
    scenario = small_fleet(tmp_path, rows, measurement={"horizon_s": horizon_s})
    result = run_both_ways(scenario)
    check_conservation(result)
    requests = result.summary["requests"]
    assert requests["turns_not_issued"] == {"run_ended": 6 - requests["arrived"]}
    assert requests["arrived"] == {0.01: 1, 2.0: 2, 4.0: 3}[horizon_s]
    assert requests["unfinished"] == (horizon_s == 0.01)


def test_simultaneous_turns_come_by_their_place_in_the_trace(tmp_path: Path) -> None:
    # five sessions of the same length in one batch; their next turns come at one instant, and are
    # too long to be prefilled together
    rows = [turn(0.0, str(i), 0) for i in range(5)]
    rows += [turn(1.0, str(i), 1, 1.0, prompt_tokens=400) for i in (3, 1, 4, 0, 2)]
    engine = {"num_gpu_blocks_override": 1000}
    table = by_turn(run_both_ways(small_fleet(tmp_path, rows, engine=engine)))[5:]
    assert table["client_sent_s"].nunique() == 1
    assert table["first_token_s"].nunique() > 3
    assert (np.diff(table["first_token_s"]) >= 0).all()


def test_journeys_are_made_when_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetsim.sim.workload import Workload

    made: list[int] = []
    original = Workload.journey

    def journey(self: Workload, row: int) -> Any:
        made.append(row)
        return original(self, row)

    monkeypatch.setattr(Workload, "journey", journey)
    rows = [turn(0.0, "a", 0), *(turn(float(i), "a", i, 1.5) for i in range(1, 6))]
    simulate(small_fleet(tmp_path, rows, measurement={"horizon_s": 2.0}))
    assert made == [0, 1]


@pytest.mark.parametrize("scheduling", [True, False])
@pytest.mark.parametrize("named", [True, False], ids=["last block named", "full blocks only"])
def test_a_growing_prompt_is_found_as_far_as_it_was_computed(
    tmp_path: Path, scheduling: bool, named: bool
) -> None:
    """As in an agent's session: each prompt holds all before it, and the answers."""
    size = 16
    rows: list[Any] = []
    said: list[tuple[int, int]] = []
    prompt = 100
    for number, (answer, added) in enumerate([(40, 30), (7, 1), (90, 200), (1, 16), (33, 50)]):
        # the blocks are those of one long text
        blocks = range(prompt // size + (named and prompt % size > 0))
        # a last block that is cut short has a name of its own
        ids = [b if (b + 1) * size <= prompt else 1000 + number for b in blocks]
        think_s = 0.5 if number else ""
        rows.append(
            turn(number * 1.0, "a", number, think_s, prompt_tokens=prompt, output_tokens=answer)
            | {"block_ids": ids, "block_tokens": size}
        )
        said.append((prompt, answer))
        prompt += answer + added
    engine = {"async_scheduling": scheduling, "num_gpu_blocks_override": 1000}
    table = by_turn(run_both_ways(small_fleet(tmp_path, rows, engine=engine)))
    # the last token of an answer was never fed back, and has no KV
    expected = [0, *((p + a - 1) // size * size for p, a in said[:-1])]
    assert table["cached_tokens"].tolist() == expected
    # without the link to the turn before, only prompts are found
    for row in rows:
        row["think_s"] = ""
    table = by_turn(run_both_ways(small_fleet(tmp_path, rows, engine=engine)))
    assert table["cached_tokens"].tolist() == [0, *(p // size * size for p, _ in said[:-1])]


def test_a_fixed_concurrency_is_refused(tmp_path: Path) -> None:
    rows = [turn(0.0, "a", 0), turn(1.0, "a", 1, 2.0)]
    scenario = small_fleet(tmp_path, rows, workload={"closed_loop": {"concurrency": 2}})
    with pytest.raises(InputError, match=r"workload\.closed_loop: the trace says itself"):
        simulate(scenario)


def test_time_scale_shortens_thinking_too(tmp_path: Path) -> None:
    rows = [turn(0.0, "a", 0), turn(1.0, "a", 1, 2.0)]
    table = by_turn(simulate(small_fleet(tmp_path, rows, workload={"time_scale": 4.0})))
    assert table["client_sent_s"][1] == table["ended_s"][0] + 0.5


def test_the_reader_is_told(tmp_path: Path) -> None:
    rows = [turn(0.0, "a", 0), turn(1.0, "a", 1, 2.0)]
    result = simulate(small_fleet(tmp_path, rows))
    notes = result.summary["provenance"]["notes"]
    assert any(note.startswith("1 of 2 requests wait for an answer") for note in notes)
    # and where nobody waits for anybody, there is no count of those who do
    alone = simulate(small_fleet(tmp_path, [turn(0.0, "a", 0)]))
    assert "turns_not_issued" not in alone.summary["requests"]


def test_journey_by_number_is_the_one_in_order(tmp_path: Path) -> None:
    from fleetsim.sim.simulate import Simulation

    rows = [
        turn(0.5 * i, "s", i, tenant="ab"[i % 2], priority=i % 3, prompt_tokens=10 + 200 * i)
        for i in range(8)
    ]
    rows[3]["max_tokens"] = 2
    for rule in ("truncate", "reject"):
        for stop in ("eos", "length"):
            workload = {"over_length": rule, "stop": stop, "max_tokens": 7}
            parts = Simulation(small_fleet(tmp_path, rows, workload=workload), None).parts
            for row, journey in enumerate(parts.workload):
                other = parts.workload.journey(row)
                for name in journey.__slots__:
                    if name != "request":
                        a, b = getattr(journey, name), getattr(other, name)
                        assert a == b or (a != a and b != b), name
                for name in journey.request.__slots__:
                    assert getattr(journey.request, name) == getattr(other.request, name), name
