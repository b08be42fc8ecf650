"""What the router believes of the caches, held against the caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from invariants.fleets import MOONCAKE

from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.prefix_knowledge import CacheEvents, NoKnowledge, OwnHistory
from fleetsim.sim.request import Request
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import Simulation


def _asks(*prefix: int) -> Request:
    return Request(0, 0.0, 1000, 10, prefix=prefix)


def test_no_knowledge() -> None:
    assert NoKnowledge().cached_tokens(_asks(1, 2)) == 0


def test_own_history_knows_leading_segments_only() -> None:
    history = OwnHistory([100, 50, 25, 10], 1000)
    history.dispatched(_asks(0, 1))
    assert history.cached_tokens(_asks(0, 1, 2)) == 150
    assert history.cached_tokens(_asks(0, 2)) == 100
    assert history.cached_tokens(_asks(2, 0)) == 0


def test_own_history_forgets_tails_before_roots_and_old_before_new() -> None:
    history = OwnHistory([100, 100, 100, 100, 100], 300)
    history.dispatched(_asks(0, 1))
    history.dispatched(_asks(2))
    history.dispatched(_asks(0))  # the root is recent again, its tail is not
    history.dispatched(_asks(3))
    assert history.cached_tokens(_asks(0, 1)) == 100
    assert history.cached_tokens(_asks(2)) == 100
    history.dispatched(_asks(4))
    assert history.cached_tokens(_asks(2)) == 0
    assert history.cached_tokens(_asks(0, 1)) == 100


def test_events_are_known_after_their_delay() -> None:
    """Blocks of 16; segment 0 has 3 of its own, 1 none, 2 has 2."""
    clock = Clock()
    events = CacheEvents(clock, 16, [3, 0, 2], 0.5)
    seen = {}

    def publish(*changes: tuple[int, int]) -> None:
        events.changes.extend(changes)
        events.stepped()

    clock.at(1.0, rank(ARRIVAL, 0), lambda _: publish((0, 2)))
    clock.at(2.0, rank(ARRIVAL, 0), lambda _: publish((0, 3), (2, 1)))
    clock.at(3.0, rank(ARRIVAL, 0), lambda _: publish((2, 0)))
    for t in (1.4, 1.5, 2.6, 3.6):
        clock.at(
            t, rank(ARRIVAL, 1),
            lambda _, t=t: seen.update({t: events.cached_tokens(_asks(0, 1, 2))}),
        )  # fmt: skip
    clock.run()
    assert seen == {1.4: 0, 1.5: 32, 2.6: 64, 3.6: 48}


@pytest.mark.parametrize("blocks", [4_000, 20_000])
def test_events_without_delay_know_what_the_cache_holds(shared_dir: Path, blocks: int) -> None:
    """After a run with evictions, for every prompt of the trace, on every replica."""
    simulation = Simulation(
        load_scenario(
            None,
            [
                "workload.head=150",
                "pools.chat.replicas=2",
                "pools.chat.engine.max_model_len=60000",
                f"pools.chat.engine.num_gpu_blocks_override={blocks}",
                "router.routing.policy=prefix_affinity",
                "router.prefix_knowledge={source: events, delay_s: 0}",
            ],
            trace=str(shared_dir / MOONCAKE),
        ),
        None,
    )
    simulation.run()
    known = 0
    pool = simulation.parts.pools[0]
    segments = simulation.parts.workload._segments
    assert segments is not None
    ends, starts = segments.end_token // 16, segments.start_token // 16
    for replica in pool.replicas:
        cache = replica.engine.scheduler.pool
        for journey in simulation.parts.workload:
            prefix = journey.request.prefix
            chain = [(s, int(ends[s] - starts[s])) for s in prefix if ends[s] > starts[s]]
            found = sum(run.hi - lo for run, lo in cache.match(chain, None, 1 << 30))
            assert replica.view.cached_tokens(journey.request) == found * 16
            known += found
    assert known > 0
    prompt_blocks = sum(j.request.prompt_tokens for j in simulation.parts.workload) // 16
    assert prompt_blocks > 2 * blocks  # so blocks were evicted
