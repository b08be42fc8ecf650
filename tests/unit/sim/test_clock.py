"""What happens at one instant happens in one stated order, however it was asked for."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from fleetsim.sim.clock import ARRIVAL, CONTROL, READY, SCHEDULE, SCRAPE, STEP_END, Clock, rank

IN_ORDER = [READY, STEP_END, ARRIVAL, SCHEDULE, SCRAPE, CONTROL]


@pytest.mark.parametrize("asked", list(permutations(IN_ORDER))[::37])
def test_the_order_of_an_instant(asked: tuple[int, ...]) -> None:
    clock, ran = Clock(), []
    for order in asked:
        clock.at(2.5, rank(order, 0), lambda _, order=order: ran.append(order))
    clock.run()
    assert ran == IN_ORDER


def test_within_an_order_components_run_by_number() -> None:
    numbers = list(range(20))
    Random(3).shuffle(numbers)
    clock, ran = Clock(), []
    for number in numbers:
        clock.at(1.0, rank(STEP_END, number), lambda _, number=number: ran.append(number))
    clock.run()
    assert ran == sorted(numbers)


def test_a_high_component_is_still_before_the_next_order() -> None:
    assert rank(STEP_END, 2**31) < rank(ARRIVAL, 0)


def test_times_are_absolute_and_exact() -> None:
    """Not now + (time - now), which is another number."""
    clock, seen = Clock(), []
    times = [0.1, 0.1 + 0.2, 0.7, 1e9 + 0.1]
    for time_s in times:
        clock.at(
            0.05, rank(ARRIVAL, 0),
            lambda _, t=time_s: clock.at(t, rank(ARRIVAL, 0), lambda _: seen.append(clock.now)),
        )  # fmt: skip
    clock.run()
    assert seen == times


def test_what_an_event_causes_at_its_own_instant_comes_after_it_in_order() -> None:
    clock, ran = Clock(), []

    def step_end(_: int) -> None:
        ran.append("step end")
        clock.at(1.0, rank(SCHEDULE, 0), lambda _: ran.append("schedule"))

    clock.at(1.0, rank(STEP_END, 0), step_end)
    clock.at(1.0, rank(ARRIVAL, 0), lambda _: ran.append("arrival"))
    clock.at(1.0, rank(SCRAPE, 0), lambda _: ran.append("scrape"))
    clock.run()
    assert ran == ["step end", "arrival", "schedule", "scrape"]


def test_an_alarm_is_called_with_its_number() -> None:
    """So a caller can tell the one it set last from those that are stale."""
    clock, called = Clock(), []
    numbers = [clock.at(t, rank(ARRIVAL, 0), called.append) for t in (2.0, 1.0, 1.0)]
    clock.run()
    assert called == [numbers[1], numbers[2], numbers[0]]
    assert len(set(numbers)) == 3


def test_stop_leaves_the_rest() -> None:
    clock, ran = Clock(), []
    for t in (1.0, 2.0, 3.0):
        clock.at(
            t, rank(ARRIVAL, 0), lambda _: (ran.append(clock.now), clock.now < 2 or clock.stop())
        )
    while clock.run_events(10):
        pass
    assert ran == [1.0, 2.0]
    assert clock.stopped
    assert not clock.run_events(10)


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_events_are_run_in_portions(most: int) -> None:
    clock, ran = Clock(), []
    for t in range(7):
        clock.at(float(t), rank(ARRIVAL, 0), lambda _: ran.append(clock.now))
    rounds = 1
    while clock.run_events(most):
        rounds += 1
    assert ran == [float(t) for t in range(7)]
    assert rounds == {1: 8, 2: 4, 1000: 1}[most]


def test_simpys_processes_run_among_alarms() -> None:
    """Theirs come before the alarms of the same instant."""
    clock, ran = Clock(), []

    def process():  # type: ignore[no-untyped-def]
        for _ in range(3):
            yield clock.timeout(1.0)
            ran.append(("process", clock.now))

    clock.process(process())
    for t in (0.5, 1.0, 2.5):
        clock.at(t, rank(READY, 0), lambda _: ran.append(("alarm", clock.now)))
    clock.run()
    assert ran == [
        ("alarm", 0.5),
        ("process", 1.0),
        ("alarm", 1.0),
        ("process", 2.0),
        ("alarm", 2.5),
        ("process", 3.0),
    ]


def test_an_error_in_an_event_is_not_lost() -> None:
    clock = Clock()
    clock.at(1.0, rank(ARRIVAL, 0), lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clock.run_events(10)
