"""The comparison catches a scheduler that preempts from the wrong end, and says what differs."""

from differential import fast_engine
from differential.compare import differing_steps, first_difference
from differential.planted_fault import FirstInFirstOut, preempting_case


def test_first_of_running_as_victim_is_caught_and_explained() -> None:
    engine, workload, recorded = preempting_case()
    assert differing_steps(recorded, fast_engine.run(workload)) == 0

    for leaps in (False, True):
        wrong = fast_engine.run(workload, leaps, scheduler=FirstInFirstOut)
        text = first_difference(recorded, wrong, (engine, "with the fault"))
        assert text is not None
        first = next(i for i, row in enumerate(recorded.rows) if row.preempted)
        last_admitted = recorded.rows[first].preempted[0]
        first_admitted = wrong.rows[first].preempted[0]
        assert recorded.rows[first - 1].running[0] == first_admitted
        assert recorded.rows[first - 1].running[-1] == last_admitted
        assert f"step {first} is the first that differs" in text
        assert engine in text
        line = next(line for line in text.splitlines() if "=> preempted" in line)
        assert last_admitted in line.split("|")[0]
        assert first_admitted in line.split("|")[1]


def test_given_durations_are_the_steps_durations() -> None:
    _, workload, recorded = preempting_case()
    durations_s = [(row.t_end - row.t_start) * 2.0 for row in recorded.rows]
    slower = fast_engine.run(workload, leaps=False, durations_s=durations_s)
    for row, duration_s in zip(slower.rows, durations_s, strict=False):
        assert row.t_end - row.t_start == duration_s
