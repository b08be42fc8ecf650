"""One engine on the clock: when requests are seen, what is told, and what its gauges show.

Steps take one second each, so that times can be read off.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fleetsim.sim.clock import ARRIVAL, SCRAPE, Clock, rank
from fleetsim.sim.engine.engine import Engine
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost

SECOND = StepCost.linear(constant_s=1.0)


class Log:
    """An `EngineListener` that writes down what it is told."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.told: list[tuple[str, int, float]] = []

    def scheduled(self, sequence: Sequence, now_s: float) -> None:
        self.told.append(("scheduled", sequence.request_id, now_s))

    def preempted(self, sequence: Sequence, now_s: float, last_token_s: float) -> None:
        self.told.append(("preempted", sequence.request_id, now_s))

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        self.told.append(("first token", sequence.request_id, now_s))

    def finished(self, sequence: Sequence, now_s: float) -> None:
        self.told.append(("finished", sequence.request_id, now_s))

    def cache_changed(self) -> None:
        self.told.append(("cache changed", -1, self.clock.now))

    def of(self, request_id: int) -> dict[str, float]:
        return {what: at for what, who, at in self.told if who == request_id}


class Bench:
    """An engine with nothing around it."""

    def __init__(self, cost: StepCost = SECOND, leaps: bool = True, **settings: Any) -> None:
        self.clock = Clock()
        self.log = Log(self.clock)
        options = {"num_gpu_blocks": 1001, "async_scheduling": False, **settings}
        self.engine = Engine(self.clock, 0, EngineSettings(**options), cost, self.log, leaps=leaps)
        self.sequences: list[Sequence] = []

    def request(
        self, at_s: float, prompt: int, output: int, capped: bool = True, **other: Any
    ) -> Sequence:
        """A request that reaches the engine at `at_s`, which it learns then."""
        chain = other.pop("chain", [])
        sequence = Sequence(len(self.sequences), at_s, prompt, output, capped, chain, **other)
        self.sequences.append(sequence)
        self.at(at_s, lambda: self.engine.submit(sequence, at_s))
        return sequence

    def at(self, time_s: float, call: Any, order: int = ARRIVAL) -> None:
        self.clock.at(time_s, rank(order, len(self.sequences)), lambda _: call())

    def run(self) -> Log:
        self.clock.run()
        self.engine.close()
        return self.log


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_request(asynchronous: bool) -> None:
    bench = Bench(async_scheduling=asynchronous)
    bench.request(2.0, 10, 3)
    assert bench.run().told == [
        ("scheduled", 0, 2.0),
        ("first token", 0, 3.0),
        ("finished", 0, 5.0),
    ]
    assert bench.engine.steps == 3
    assert bench.engine.scheduled_tokens == 10 + 2
    assert bench.engine.busy_s == 3.0


def test_async_scheduling_cannot_foresee_a_stop_token() -> None:
    """The step after the last token has begun when that token is known; it is for nothing."""
    bench = Bench(async_scheduling=True)
    bench.request(0.0, 10, 3, capped=False)
    assert bench.run().of(0)["finished"] == 3.0
    assert (bench.engine.steps, bench.engine.busy_s) == (4, 4.0)
    sync = Bench()
    sync.request(0.0, 10, 3, capped=False)
    assert sync.run().of(0)["finished"] == 3.0
    assert (sync.engine.steps, sync.engine.busy_s) == (3, 3.0)


@pytest.mark.parametrize("leaps", [True, False])
@pytest.mark.parametrize(
    ("asynchronous", "arrival_s", "scheduled_s"),
    [
        (False, 2.5, 3.0),
        (False, 3.0, 3.0),  # at a step's end: in the schedule that follows
        (False, 3.0000001, 4.0),
        (True, 2.5, 3.0),  # step N + 1 was decided when N began, at 2
        (True, 3.0, 3.0),
        (True, 3.0000001, 4.0),
    ],
)
def test_an_arrival_is_seen_by_the_next_schedule(
    asynchronous: bool, arrival_s: float, scheduled_s: float, leaps: bool
) -> None:
    """Sync: the next step has it. Async: the one after; `scheduled` is when that was decided."""
    bench = Bench(async_scheduling=asynchronous, leaps=leaps)
    bench.request(0.0, 10, 20)
    bench.request(arrival_s, 10, 2)
    told = bench.run().of(1)
    assert told["scheduled"] == scheduled_s
    assert told["first token"] == scheduled_s + 1 + asynchronous


def test_an_arrival_known_beforehand_costs_nothing_else() -> None:
    """`submit` takes times that are still to come."""
    bench = Bench()
    sequence = Sequence(0, 7.25, 10, 2, True, [])
    bench.engine.submit(sequence, 7.25)
    assert bench.engine.num_requests_waiting() == 0
    assert bench.run().told == [
        ("scheduled", 0, 7.25),
        ("first token", 0, 8.25),
        ("finished", 0, 9.25),
    ]


def test_arrivals_out_of_order_are_taken_in_order() -> None:
    bench = Bench(max_num_seqs=1)
    for at_s in (5.0, 3.0, 4.0):
        bench.engine.submit(Sequence(int(at_s), at_s, 1, 1, True, []), at_s)
    assert [who for what, who, _ in bench.run().told if what == "finished"] == [3, 4, 5]


# -- aborts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_abort_frees_when_the_step_in_flight_has_ended(asynchronous: bool) -> None:
    bench = Bench(async_scheduling=asynchronous)
    doomed = bench.request(0.0, 160, 50)
    used: dict[float, int] = {}
    for at_s in (4.25, 4.75, 5.25, 6.25):
        bench.at(at_s, lambda at_s=at_s: used.update({at_s: bench.engine.used_blocks()}))
    bench.at(4.5, lambda: bench.engine.abort(doomed))
    assert "finished" not in bench.run().of(0)
    assert used[4.25] == used[4.75] == 11
    assert used[6.25] == 0
    assert used[5.25] == 0 or asynchronous


def test_an_abort_before_the_arrival_is_the_end_of_it() -> None:
    bench = Bench()
    sequence = Sequence(0, 3.0, 10, 2, True, [])
    bench.engine.submit(sequence, 3.0)
    bench.at(1.0, lambda: bench.engine.abort(sequence))
    assert bench.run().told == []
    assert bench.engine.steps == 0


@pytest.mark.parametrize("leaps", [True, False])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_abort_of_one_that_waits_behind_a_blocked_head(asynchronous: bool, leaps: bool) -> None:
    """It came in a leap that it did not cut."""
    bench = Bench(async_scheduling=asynchronous, leaps=leaps, max_num_seqs=1)
    bench.request(0.0, 10, 30)
    bench.request(1.5, 10, 3)
    doomed = bench.request(5.5, 10, 3)
    bench.request(6.5, 10, 3)
    bench.at(9.5, lambda: bench.engine.abort(doomed))
    log = bench.run()
    assert log.of(2) == {}
    assert log.of(1)["finished"] == 33.0
    assert log.of(3)["finished"] == 36.0


def test_aborting_twice_or_after_the_end_does_nothing() -> None:
    bench = Bench()
    done, other = bench.request(0.0, 10, 2), bench.request(0.0, 10, 9)
    bench.at(5.0, lambda: bench.engine.abort(done))
    bench.at(5.0, lambda: bench.engine.abort(other))
    bench.at(5.5, lambda: bench.engine.abort(other))
    bench.run()
    assert bench.engine.num_requests_running() == 0
    assert bench.engine.used_blocks() == 0


# -- gauges --------------------------------------------------------------------------------------


def test_gauges_of_one_request() -> None:
    """100 prompt tokens in blocks of 16, then one token a step."""
    bench = Bench()
    sequence = bench.request(1.0, 100, 40)
    seen = []
    for at_s in (0.5, 1.5, 2.5, 14.5, 40.5, 41.5):
        bench.at(
            at_s,
            lambda: seen.append(
                (
                    bench.engine.num_requests_running(),
                    bench.engine.used_blocks(),
                    bench.engine.decode_tokens(),
                    bench.engine.delivered_tokens(sequence),
                )
            ),
        )
    bench.run()
    assert seen == [
        (0, 0, 0, 0),
        (1, 7, 0, 0),  # prefill
        (1, 7, 101, 1),  # its first token is being fed back
        (1, 8, 113, 13),
        (1, 9, 139, 39),
        (0, 0, 0, 40),
    ]


def _probes(seed: int, leaps: bool) -> list[tuple[Any, ...]]:
    """What the gauges show at many times, some of them exactly the ends of steps."""
    rng = Random(seed)
    priority = rng.random() < 0.3
    bench = Bench(
        cost=StepCost.linear(constant_s=1.0, per_token_s=rng.choice([0.0, 2.0**-7])),
        leaps=leaps,
        async_scheduling=rng.random() < 0.5,
        num_gpu_blocks=rng.choice([30, 60, 1001]),
        max_num_seqs=rng.choice([2, 8]),
        max_num_batched_tokens=rng.choice([64, 512]),
        max_model_len=400,
        scheduling_policy="priority" if priority else "fcfs",
    )
    sequences = []
    for _ in range(rng.randint(3, 14)):
        at_s = rng.choice([rng.uniform(0, 60), float(rng.randrange(60))])
        sequence = bench.request(
            at_s, rng.randint(1, 200), rng.randint(1, 100), rng.random() < 0.6,
            chain=rng.choice([[], [(1, 4)], [(1, 4), (2, 3)]]) if rng.random() < 0.3 else [],
            priority=rng.randrange(3),
        )  # fmt: skip
        sequence.chain = sequence.chain if sequence.prompt_tokens > 112 else []
        sequence.chain_blocks = sum(n for _, n in sequence.chain)
        sequences.append(sequence)
        if rng.random() < 0.25:
            gone_s = at_s + rng.choice([0.0, 0.5, 3.0, float(rng.randrange(30))])
            bench.at(gone_s, lambda s=sequence: bench.engine.abort(s))
    seen: list[tuple[Any, ...]] = []
    engine = bench.engine

    def look(order: int) -> None:
        row: tuple[Any, ...] = (
            bench.clock.now,
            engine.num_requests_running(),
            engine.num_requests_waiting(),
            [engine.delivered_tokens(s) for s in sequences],
        )
        # as in the simulator: the router asks when a request comes, the rest is scraped
        if order == SCRAPE:
            row += (engine.used_blocks(), engine.steps)
        else:
            row += (engine.decode_tokens(),)
        seen.append(row)

    for _ in range(60):
        at_s = rng.choice([rng.uniform(0, 150), float(rng.randrange(150))])
        order = rng.choice([ARRIVAL, SCRAPE])
        bench.at(at_s, lambda order=order: look(order), order)
    log = bench.run()
    seen.append((log.told, engine.steps, engine.scheduled_tokens, engine.busy_s))
    assert engine.used_blocks() == 0
    return seen


@pytest.mark.parametrize("seed", range(60))
def test_gauges_in_a_leap_are_those_of_single_steps(seed: int) -> None:
    for with_leaps, without in zip(_probes(seed, True), _probes(seed, False), strict=True):
        assert with_leaps == without


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 5000, 500))
def test_gauges_in_many_leaps(first: int) -> None:
    for seed in range(first, first + 500):
        assert _probes(seed, True) == _probes(seed, False), seed


def test_a_leap_costs_one_event() -> None:
    bench, single = Bench(), Bench(leaps=False)
    for each in (bench, single):
        each.request(0.0, 10, 500)
        each.run()
    assert (bench.engine.steps, single.engine.steps) == (500, 500)
    assert bench.engine.events <= 3
    assert single.engine.events == 500
