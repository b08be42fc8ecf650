"""LoRA slots: who may pass whom, whose adapter counts, and what a leap must not sleep through."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.engine.engine import Engine
from fleetsim.sim.engine.lora import LoraSlots
from fleetsim.sim.engine.sequence import GONE, WAITING, Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost


class Bench:
    """An engine whose steps take a second; notes when requests are first scheduled, and end."""

    def __init__(self, leaps: bool = True, **settings: Any) -> None:
        self.clock = Clock()
        self.scheduled_s: dict[int, float] = {}
        self.finished_s: dict[int, float] = {}
        options = {
            "num_gpu_blocks": 1001,
            "async_scheduling": False,
            "max_loras": 1,
            **settings,
        }
        cost = StepCost.linear(constant_s=1.0)
        self.engine = Engine(self.clock, 0, EngineSettings(**options), cost, self, leaps=leaps)

    def scheduled(self, sequence: Sequence, now_s: float) -> None:
        self.scheduled_s.setdefault(sequence.request_id, now_s)

    def preempted(self, sequence: Sequence, now_s: float, last_token_s: float) -> None:
        pass

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        pass

    def finished(self, sequence: Sequence, now_s: float) -> None:
        self.finished_s[sequence.request_id] = now_s

    def cache_changed(self) -> None:
        pass

    def run(self, *requests: tuple[float, int, str], **other: Any) -> list[float]:
        """Requests as (arrival, output tokens, adapter); when each was first scheduled."""
        for number, (at_s, output_tokens, adapter) in enumerate(requests):
            sequence = Sequence(number, at_s, 20, output_tokens, True, [], adapter=adapter, **other)
            self.clock.at(
                at_s,
                rank(ARRIVAL, number),
                lambda _, s=sequence: self.engine.submit(s, s.arrival_s),
            )
        self.clock.run()
        assert self.finished_s.keys() == set(range(len(requests)))
        lora = self.engine.scheduler.lora
        assert lora is None or not lora.users
        return [self.scheduled_s[number] for number in range(len(requests))]


def test_who_wants_another_adapter_is_passed_by_all_others() -> None:
    # b and d wait for a's slot, c and e do not; then b is first, and d shares its slot
    requests = [(0.0, 3, "x"), (0.0, 2, "y"), (0.0, 1, "x"), (0.0, 1, "y"), (0.0, 1, "")]
    assert Bench().run(*requests) == [0.0, 3.0, 0.0, 3.0, 0.0]


def test_those_passed_over_keep_their_order() -> None:
    requests = [(0.0, 2, "x"), (0.0, 2, "y"), (0.0, 2, "z"), (0.0, 2, "y")]
    assert Bench().run(*requests) == [0.0, 2.0, 4.0, 2.0]


def test_as_many_adapters_as_slots() -> None:
    requests = [(0.0, 2, name) for name in "uvwxyz"]
    assert Bench(max_loras=3).run(*requests) == [0.0, 0.0, 0.0, 2.0, 2.0, 2.0]


def test_without_max_loras_nobody_waits() -> None:
    requests = [(0.0, 3, "x"), (0.0, 2, "y"), (0.0, 1, "z")]
    assert Bench(max_loras=None).run(*requests) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("leaps", [False, True])
def test_an_arrival_cuts_a_leap_if_it_may_pass_all_who_wait(leaps: bool) -> None:
    requests = [(0.0, 40, "x"), (0.0, 1, "y"), (10.5, 1, "z"), (20.5, 1, "x"), (25.5, 1, "")]
    assert Bench(leaps).run(*requests) == [0.0, 40.0, 41.0, 21.0, 26.0]


@pytest.mark.parametrize("leaps", [False, True])
def test_nobody_passes_who_waits_for_a_place(leaps: bool) -> None:
    # x has one of two places; behind y, who waits for a slot, stands one who takes the other
    requests = [(0.0, 30, "x"), (0.0, 1, "y"), (0.0, 20, ""), (5.5, 1, "x")]
    bench = Bench(leaps, max_num_seqs=2)
    assert bench.run(*requests) == [0.0, 30.0, 0.0, 20.0]
    if leaps:
        assert bench.engine.events < 12  # the arrival that nothing could come of cut nothing


@pytest.mark.parametrize(("version", "scheduled_s"), [("0.32", 3.0), ("0.33", 4.0)])
def test_async_a_slot_is_free_before_or_after_the_last_token(
    version: str, scheduled_s: float
) -> None:
    # Step 3 computes a's fourth and last token. Step 4 is scheduled while it runs: 0.32 no longer
    # counts a, which gets no token in it; 0.33 does, since a holds its place.
    bench = Bench(async_scheduling=True, engine_version=version)
    found = bench.run((0.0, 4, "x"), (0.0, 2, "y"), (0.0, 9, ""))
    assert found == [0.0, scheduled_s, 0.0]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("version", ["0.32", "0.33"])
@pytest.mark.parametrize("is_async", [False, True])
def test_leaps_change_nothing(policy: str, version: str, is_async: bool) -> None:
    for seed in range(10):
        rng = Random(f"{policy}/{seed}")
        requests = [
            (rng.randrange(400) / 4, rng.randint(1, 30), rng.choice(["", "v", "w", "x", "y"]))
            for _ in range(60)
        ]
        requests.sort()
        settings = {
            "max_loras": rng.choice([1, 2]),
            "max_num_seqs": rng.choice([3, 20]),
            "num_gpu_blocks": rng.choice([10, 40, 1001]),
            "scheduling_policy": policy,
            "engine_version": version,
            "async_scheduling": is_async,
        }
        each, leaping = Bench(False, **settings), Bench(True, **settings)
        assert each.run(*requests) == leaping.run(*requests)
        assert each.finished_s == leaping.finished_s
        assert leaping.engine.events <= each.engine.events


def _waiting(number: int, adapter: str, **other: Any) -> Sequence:
    sequence = Sequence(number, float(number), 20, 1, True, [], adapter=adapter, **other)
    sequence.state = WAITING
    return sequence


@pytest.mark.parametrize("by_priority", [False, True])
def test_the_first_who_may_go_in(by_priority: bool) -> None:
    slots = LoraSlots(2, until_the_end=False, by_priority=by_priority)
    queue = [_waiting(i, adapter) for i, adapter in enumerate(["x", "y", "z", "", "y", "x"])]
    for sequence in queue:
        slots.add(sequence)
    assert slots.queue() == queue
    went_in = []
    while (head := slots.head()) is not None:
        went_in.append(head.request_id)
        slots.pop(head)
        slots.take(head.adapter)
    assert went_in == [0, 1, 3, 4, 5]
    assert slots.users == {"x": 2, "y": 2}
    assert slots.queue() == [queue[2]]
    slots.leave("")
    slots.leave("x")
    assert slots.head() is None
    slots.leave("x")
    assert slots.head() is queue[2]
    queue[2].state = GONE
    assert slots.head() is None
    assert not any(slots.lines.values())


def test_the_preempted_go_to_the_front_or_to_their_place() -> None:
    first, second, third = (_waiting(i, "x", priority=i % 2) for i in range(3))
    fcfs, by_priority = LoraSlots(1, False, False), LoraSlots(1, False, True)
    for slots in (fcfs, by_priority):
        slots.add(first)
        slots.put_back(second)
        slots.put_back(third)
    assert fcfs.queue() == [third, second, first]
    assert by_priority.queue() == [first, third, second]
