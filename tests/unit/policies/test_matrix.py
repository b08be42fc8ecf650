"""Every shipped policy can be built and answers in shape, in every small situation."""

from itertools import product

import pytest
from unit.policies.fakes import DRAWS, FakeReplica, FakeRequest, pool_of

from fleetsim.policies import build, find, names

REQUIRED = {
    ("limits", "token_bucket"): {"tokens_per_minute": 60_000},
    ("limits", "reserve_only"): {"tokens_per_minute": 60_000},
    ("limits", "requests_per_minute"): {"requests_per_minute": 60},
    ("limits", "concurrency"): {"max_in_flight": 2},
}


def test_what_is_shipped():
    assert names("routing") == (
        "always_first",
        "least_requests",
        "least_tokens",
        "power_of_two",
        "prefix_affinity",
        "random",
        "round_robin",
    )
    assert names("admission") == ("always", "predictive_ttft", "reject_all")
    assert names("limits") == (
        "concurrency",
        "requests_per_minute",
        "reserve_only",
        "token_bucket",
        "unlimited",
    )


@pytest.mark.parametrize("name", names("routing"))
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_routing_chooses_a_ready_replica(name, n):
    policy = build("routing", name, None, "test")
    assert isinstance(policy.needs_scraped, bool)
    assert isinstance(policy.needs_prefix, bool)
    for i, (queued, running, cached) in enumerate(product((0, 5000), repeat=3)):
        pool = pool_of(n)
        pool.replicas[i % n].queued_tokens = queued
        pool.replicas[(i + 1) % n].running_tokens = running
        pool.replicas[(i + 2) % n].cached = {(1,): cached}
        request = FakeRequest(i, attempt=i % 3, prefix=(1,))
        decision = policy.choose(request, pool, DRAWS)
        assert 0 <= decision.target < n
        assert decision.reason


@pytest.mark.parametrize("name", names("routing"))
def test_routing_is_a_function_of_the_calls_alone(name):
    def run():
        policy = build("routing", name, None, "test")
        pool = pool_of(5)
        return [policy.choose(FakeRequest(i), pool, DRAWS).target for i in range(50)]

    assert run() == run()


def test_routing_ignores_the_cache_unless_it_declares_it():
    class Blind(FakeReplica):
        def cached_tokens(self, request):
            raise AssertionError("asked for prefixes")

        @property
        def scraped(self):
            raise AssertionError("asked for scraped metrics")

        @scraped.setter
        def scraped(self, value):
            pass

    for name in names("routing"):
        policy = build("routing", name, None, "test")
        pool = pool_of(1)
        pool.replicas = [Blind(i) for i in range(4)]
        assert not policy.needs_scraped
        if not policy.needs_prefix:
            policy.choose(FakeRequest(), pool, DRAWS)


@pytest.mark.parametrize("name", names("admission"))
@pytest.mark.parametrize("queued", [0, 1_000_000])
def test_admission_answers(name, queued):
    policy = build("admission", name, None, "test")
    pool = pool_of(2, queued_tokens=queued)
    verdict = policy.admit(FakeRequest(), pool.replicas[0], pool)
    assert verdict.admitted == (name == "always" or (name == "predictive_ttft" and not queued))
    assert verdict.admitted == (verdict.reason == "")


@pytest.mark.parametrize("name", names("limits"))
def test_limits_answer(name):
    limit = build("limits", name, REQUIRED.get(("limits", name)), "test")
    assert limit.largest_estimate_tokens > 0
    assert limit.try_reserve(0.0, 1200).admitted
    limit.reconcile(1.0, 1200, 1100)
    assert limit.try_reserve(1.0, 1200).admitted
    limit.cancel(1.0, 1200)
    assert limit.try_reserve(1.0, 1200).admitted


@pytest.mark.parametrize("kind", ["routing", "admission", "limits"])
def test_each_kind_ships_a_deliberately_bad_one_that_says_so(kind):
    docs = [find(kind, name, "test").__doc__ for name in names(kind)]
    assert sum(doc.startswith("DELIBERATELY BAD") for doc in docs) == 1
