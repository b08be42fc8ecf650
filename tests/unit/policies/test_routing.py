"""Replica selection: the chapter's numbers, ties, the cost of looking, and who loses."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.policies.fakes import (
    DRAWS,
    CountingSequence,
    FakePool,
    FakeReplica,
    FakeRequest,
    choose,
    mean_wait_s,
    pool_of,
)

from fleetsim.policies import build
from fleetsim.policies.routing.sampling import sample
from fleetsim.sim.randomness import Draws


def routing(name, **params):
    return build("routing", name, params, "test")


# --- power of two -----------------------------------------------------------------------------


def test_effective_load_is_queued_plus_half_of_running_minus_cached():
    pool = FakePool(
        [
            FakeReplica(0, queued_tokens=1000, running_tokens=4000, cached={(9,): 512}),
            FakeReplica(1, queued_tokens=2000, running_tokens=1000),
        ]
    )
    decision = choose(routing("power_of_two"), FakeRequest(prefix=(9,)), pool)
    assert decision.target == 0
    assert decision.scores == (1000 + 0.5 * 4000 - 512, 2000 + 0.5 * 1000)
    assert choose(routing("power_of_two"), FakeRequest(), pool).target == 1
    assert choose(routing("power_of_two", prefix_bonus=0.0), FakeRequest(prefix=(9,)), pool) == (
        choose(routing("power_of_two"), FakeRequest(), pool)
    )


def test_a_running_weight_of_one_counts_running_in_full():
    pool = FakePool([FakeReplica(0, running_tokens=1000), FakeReplica(1, queued_tokens=700)])
    assert choose(routing("power_of_two"), FakeRequest(), pool).target == 0
    assert choose(routing("power_of_two", running_weight=1.0), FakeRequest(), pool).target == 1


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_power_of_d_looks_at_d_of_a_thousand(d):
    policy = routing("power_of_two", d=d)
    for request_id in range(200):
        replicas = CountingSequence(1000)
        target = policy.choose(FakeRequest(request_id), FakePool(replicas), DRAWS).target
        assert len(set(replicas.looked_at)) == len(replicas.looked_at) == d
        assert target in replicas.looked_at


def test_a_retry_looks_elsewhere():
    policy = routing("power_of_two")
    seen = set()
    for attempt in range(20):
        replicas = CountingSequence(1000)
        policy.choose(FakeRequest(5, attempt=attempt), FakePool(replicas), DRAWS)
        seen.update(replicas.looked_at)
    assert len(seen) > 30


def test_two_choices_beat_one_at_balls_into_bins():
    """n balls into n bins: about ln n / ln ln n against ln ln n / ln 2 (+ O(1))."""
    n = 5000

    def max_load(name, **params):
        policy = routing(name, **params)
        pool = pool_of(n)
        draws = Draws(3, name)
        for i in range(n):
            target = policy.choose(FakeRequest(i), pool, draws).target
            pool.replicas[target].queued_tokens += 1
        return max(replica.queued_tokens for replica in pool.replicas)

    one, two, three = max_load("random"), max_load("power_of_two"), max_load("power_of_two", d=3)
    assert one >= 6
    assert two <= 4
    assert three <= two


@settings(max_examples=50, deadline=None)
@given(
    loads=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1),
    request_id=st.integers(0, 10**6),
)
def test_the_prefix_bonus_vanishes_when_nothing_is_shared(loads, request_id):
    pool = FakePool([FakeReplica(i, q, r, cached={(1,): 512}) for i, (q, r) in enumerate(loads)])
    request = FakeRequest(request_id, prefix=(2,))
    for d in (1, 2, 3):
        without = choose(routing("power_of_two", d=d, prefix_bonus=0.0), request, pool)
        assert choose(routing("power_of_two", d=d), request, pool) == without
        shared_by_all = FakeRequest(request_id, prefix=(1,))
        assert choose(routing("power_of_two", d=d), shared_by_all, pool).target == without.target


def test_without_bonus_no_prefix_knowledge_is_asked_for():
    assert routing("power_of_two").needs_prefix
    assert not routing("power_of_two", prefix_bonus=0.0).needs_prefix


# --- sampling and ties -------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 50), data=st.data(), bits=st.integers(0, 2**64 - 1))
def test_a_sample_has_no_repeats(n, data, bits):
    k = data.draw(st.integers(0, n))
    chosen = sample(n, k, bits)
    assert len(set(chosen)) == k
    assert all(0 <= i < n for i in chosen)


def test_every_ordered_sample_is_as_likely():
    counts = Counter(sample(4, 3, DRAWS.bits(i, 0)) for i in range(24_000))
    assert len(counts) == 24
    # chi-square with 23 degrees of freedom: 99.99 % are below 55
    assert sum((c - 1000) ** 2 / 1000 for c in counts.values()) < 55


@pytest.mark.parametrize(
    "name", ["random", "power_of_two", "least_requests", "least_tokens", "prefix_affinity"]
)
def test_ties_fall_on_every_replica_alike(name):
    policy = routing(name)
    pool = pool_of(8)
    counts = Counter(choose(policy, FakeRequest(i), pool).target for i in range(8000))
    # chi-square with 7 degrees of freedom: 99.99 % are below 30
    assert sum((counts[i] - 1000) ** 2 / 1000 for i in range(8)) < 30


@pytest.mark.parametrize("name", ["least_requests", "least_tokens", "prefix_affinity"])
def test_ties_among_some_never_leave_them(name):
    pool = pool_of(5, queued_tokens=10_000, outstanding_requests=1)
    for i in (1, 4):
        pool.replicas[i].queued_tokens = 9_000
        pool.replicas[i].outstanding_requests = 0
    targets = {choose(routing(name), FakeRequest(i), pool).target for i in range(50)}
    assert targets == {1, 4}


@pytest.mark.parametrize("name", ["least_requests", "least_tokens"])
def test_a_burst_at_one_instant_spreads(name):
    policy = routing(name)
    pool = pool_of(8)
    for i in range(16):
        replica = pool.replicas[choose(policy, FakeRequest(i), pool).target]
        replica.queued_tokens += 1000
        replica.outstanding_requests += 1
    assert {replica.outstanding_requests for replica in pool.replicas} == {2}


def test_running_work_counts():
    pool = FakePool(
        [
            FakeReplica(0, running_tokens=9000, outstanding_requests=3),
            FakeReplica(1, queued_tokens=100, outstanding_requests=1),
        ]
    )
    for name in ("least_requests", "least_tokens", "power_of_two", "prefix_affinity"):
        assert choose(routing(name), FakeRequest(), pool).target == 1


def test_tokens_and_requests_disagree():
    pool = FakePool(
        [
            FakeReplica(0, queued_tokens=100_000, outstanding_requests=1),
            FakeReplica(1, queued_tokens=300, outstanding_requests=3),
        ]
    )
    assert choose(routing("least_requests"), FakeRequest(), pool).target == 0
    assert choose(routing("least_tokens"), FakeRequest(), pool).target == 1


def test_round_robin_takes_turns_and_survives_a_change_of_the_pool():
    policy = routing("round_robin")
    turns = [choose(policy, FakeRequest(i), pool_of(3)).target for i in range(5)]
    assert turns == [0, 1, 2, 0, 1]
    assert choose(policy, FakeRequest(5), pool_of(2)).target == 0
    assert [choose(policy, FakeRequest(6), pool_of(4)).target for _ in range(4)] == [1, 2, 3, 0]


# --- prefix affinity ---------------------------------------------------------------------------


def test_the_longest_prefix_wins_and_its_ties_go_to_the_fewest_tokens():
    pool = FakePool(
        [
            FakeReplica(0, queued_tokens=1000, cached={(1,): 512}),
            FakeReplica(1, queued_tokens=3000, cached={(1,): 1024}),
            FakeReplica(2, queued_tokens=2000, cached={(1,): 1024}),
            FakeReplica(3),
        ]
    )
    decision = choose(routing("prefix_affinity"), FakeRequest(prefix=(1,)), pool)
    assert (decision.target, decision.reason) == (2, "cached_prefix")
    decision = choose(routing("prefix_affinity"), FakeRequest(prefix=(2,)), pool)
    assert (decision.target, decision.reason) == (3, "least_tokens")


def test_the_guard_spreads_a_hot_prefix():
    """One prefix, cached wherever it was once served: without a guard one replica gets all."""

    def loads(**params):
        policy = routing("prefix_affinity", **params)
        pool = pool_of(8)
        pool.replicas[3].cached = {(1,): 900}
        for i in range(400):
            replica = pool.replicas[choose(policy, FakeRequest(i, prefix=(1,)), pool).target]
            replica.queued_tokens += 1000
            replica.cached = {(1,): 900}
        return [replica.queued_tokens for replica in pool.replicas]

    assert max(loads(load_factor=1e9)) == 400_000
    guarded = loads(load_factor=1.5)
    # the bound held before each dispatch, so it is passed by one request at most
    assert max(guarded) <= 1.5 * 400_000 / 8 + 1000
    # and no more replicas learn the prefix than its load needs
    assert sum(load > 0 for load in guarded) == 6


def test_an_almost_idle_pool_is_not_guarded():
    pool = pool_of(8)
    pool.replicas[3].queued_tokens = 3000
    pool.replicas[3].cached = {(1,): 900}
    request = FakeRequest(prefix=(1,))
    assert choose(routing("prefix_affinity"), request, pool).target == 3
    assert choose(routing("prefix_affinity", guard_floor_tokens=0), request, pool).target != 3


@settings(max_examples=100, deadline=None)
@given(loads=st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_somebody_is_always_under_the_bound(loads):
    pool = FakePool([FakeReplica(i, load) for i, load in enumerate(loads)])
    policy = routing("prefix_affinity", load_factor=1.0, guard_floor_tokens=0)
    assert loads[choose(policy, FakeRequest(), pool).target] == min(loads)


# --- who wins and who loses --------------------------------------------------------------------


@pytest.fixture(scope="module")
def waits():
    """Mean waits on 8 queues at 80 % load, Poisson arrivals, lengths with a long tail."""
    random = Random(11)
    arrivals, now = [], 0.0
    for _ in range(6000):
        now += random.expovariate(8 * 0.8 * 10_000 / 1000)
        arrivals.append((now, max(1, round(1000 * random.paretovariate(2.5) * 0.6))))
    names = ("always_first", "random", "round_robin", "least_requests", "least_tokens")
    result = {name: mean_wait_s(routing(name), arrivals, 8, 10_000) for name in names}
    result["power_of_two"] = mean_wait_s(routing("power_of_two"), arrivals, 8, 10_000)
    return result


def test_the_bad_router_loses(waits):
    others = [wait for name, wait in waits.items() if name != "always_first"]
    assert waits["always_first"] > 20 * max(others)


def test_looking_at_two_beats_looking_at_none_and_tokens_beat_requests(waits):
    assert waits["power_of_two"] < 0.5 * waits["random"]
    assert waits["power_of_two"] < waits["round_robin"] < waits["random"]
    assert waits["least_tokens"] < waits["least_requests"] < waits["round_robin"]
    assert waits["least_tokens"] < waits["power_of_two"]
