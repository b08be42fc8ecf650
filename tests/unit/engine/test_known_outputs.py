"""Outputs whose content is known: their blocks become findable as they fill, in leaps too."""

from __future__ import annotations

from typing import Any

import pytest

from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings

PROMPT, ANSWER, OTHER = 1, 2, 3


def scheduler(**options: Any) -> Scheduler:
    settings = {"num_gpu_blocks": 101, "max_num_seqs": 2, "async_scheduling": False, **options}
    return Scheduler(EngineSettings(**settings))


def request(number: int, chain: list[tuple[int, int]], output: int = 1000) -> Sequence:
    return Sequence(number, 0.0, 32, output, True, chain)


def start(chosen: Scheduler, *sequences: Sequence) -> None:
    """Schedule the prefill of all of them: from now on they decode."""
    for sequence in sequences:
        chosen.add(sequence)
    assert chosen.schedule() is not None
    if chosen.lag:
        assert chosen.schedule() is not None
    chosen.update()


@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 15, 16, 17, 18, 31, 32, 33, 100])
def test_a_leap_makes_findable_what_its_steps_would(steps: int, lag: bool) -> None:
    found = []
    for leaps in (True, False):
        chosen = scheduler(async_scheduling=lag)
        start(chosen, request(0, [(PROMPT, 2), (ANSWER, 5)]))
        if leaps:
            assert chosen.leap_limit(1000) >= steps
            chosen.leap(steps)
        else:
            for _ in range(steps):
                chosen.schedule()
                chosen.update()
        node = chosen.pool.nodes.get(ANSWER)
        found.append(0 if node is None else node.cached_blocks())
    # Async scheduling was one step ahead already, but does not know that step's token yet.
    assert found == [min(steps // 16, 5)] * 2


def test_two_who_fill_the_same_go_step_by_step() -> None:
    same = [(PROMPT, 2), (ANSWER, 5)]
    chosen = scheduler()
    start(chosen, request(0, same), request(1, same, output=20))
    assert chosen.leap_limit(1000) == 0
    for _ in range(20):
        chosen.schedule()
        chosen.update()
    assert chosen.n_decodes == 1
    assert chosen.leap_limit(1000) > 100  # the other one has ended


def test_two_who_fill_different_ones_leap() -> None:
    chosen = scheduler()
    start(chosen, request(0, [(PROMPT, 2), (ANSWER, 5)]), request(1, [(PROMPT, 2), (OTHER, 5)]))
    assert chosen.leap_limit(1000) > 100


def test_whoever_listens_hears_of_each_block_at_its_step() -> None:
    chosen = scheduler()
    chosen.pool.changes = []
    start(chosen, request(0, [(PROMPT, 2), (ANSWER, 5)]))
    chosen.pool.changes.clear()
    assert chosen.leap_limit(1000) == 0


@pytest.mark.parametrize(("segment", "leaps"), [(ANSWER, False), (OTHER, True)])
def test_the_head_of_the_queue_may_wait_for_an_answer(segment: int, leaps: bool) -> None:
    chosen = scheduler(max_num_seqs=1)
    start(chosen, request(0, [(PROMPT, 2), (ANSWER, 5)]))
    chosen.add(request(1, [(PROMPT, 2), (segment, 1)]))
    chosen.schedule()
    chosen.update()
    assert (chosen.leap_limit(1000) > 100) == leaps
    assert chosen.head_blocked == (leaps or chosen.n_running == 1)


def test_without_a_cache_nothing_is_known() -> None:
    chosen = scheduler(enable_prefix_caching=False)
    start(chosen, request(0, [(PROMPT, 2), (ANSWER, 5)]))
    assert not chosen.chained
    assert chosen.leap_limit(1000) > 100
