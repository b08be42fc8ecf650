"""Limits: reserve and reconcile, exact waits, all or nothing, and who loses."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.policies import build
from fleetsim.policies.limits import AllOf, refuse_hopeless
from fleetsim.policies.limits.bucket import Bucket
from fleetsim.traces.errors import InputError


def limit(name, **params):
    return build("limits", name, params, "test")


def test_reserve_then_reconcile():
    bucket = limit("token_bucket", tokens_per_minute=60_000, burst_tokens=10_000)
    assert bucket.try_reserve(0.0, 6000).admitted
    assert bucket.level_tokens(0.0) == 4000
    refused = bucket.try_reserve(0.0, 6000)
    assert (refused.reason, refused.retry_after_s) == ("rate_limit_tokens", 2.0)
    assert bucket.level_tokens(0.0) == 4000
    bucket.reconcile(1.0, 6000, 1500)
    assert bucket.level_tokens(1.0) == 4000 + 1000 + 4500


def test_a_refund_stops_at_the_capacity():
    bucket = limit("token_bucket", tokens_per_minute=60_000, burst_tokens=10_000)
    assert bucket.try_reserve(0.0, 6000).admitted
    bucket.reconcile(100.0, 6000, 0)
    assert bucket.level_tokens(100.0) == 10_000


def test_more_than_the_estimate_leaves_a_debt_that_is_worked_off():
    bucket = limit("token_bucket", tokens_per_minute=60, burst_tokens=100)
    assert bucket.try_reserve(0.0, 100).admitted
    bucket.reconcile(0.0, 100, 130)
    assert bucket.level_tokens(0.0) == -30
    assert bucket.try_reserve(0.0, 1).retry_after_s == 31.0


def test_the_burst_is_one_minute_unless_said():
    assert limit("token_bucket", tokens_per_minute=500).largest_estimate_tokens == 500
    bucket = limit("token_bucket", tokens_per_minute=500, burst_tokens=70)
    assert bucket.largest_estimate_tokens == 70


def test_a_cost_above_the_capacity_has_its_own_reason_and_no_retry_after():
    bucket = limit("token_bucket", tokens_per_minute=60_000, burst_tokens=1000)
    verdict = bucket.try_reserve(0.0, 1001)
    assert (verdict.admitted, verdict.reason) == (False, "exceeds_burst")
    assert verdict.retry_after_s is None
    assert bucket.try_reserve(0.0, 1000).admitted


def test_a_limit_that_nothing_passes_is_refused_at_the_start():
    bucket = limit("token_bucket", tokens_per_minute=60_000, burst_tokens=1000)
    refuse_hopeless(bucket, 1000, "fleet.yaml: gateway")
    refuse_hopeless(limit("unlimited"), 10**9, "fleet.yaml: gateway")
    with pytest.raises(InputError, match=r"^fleet.yaml: gateway.limits.0: holds 1000 tokens.*1001"):
        refuse_hopeless(bucket, 1001, "fleet.yaml: gateway.limits.0")
    both = AllOf([limit("unlimited"), bucket])
    with pytest.raises(InputError):
        refuse_hopeless(both, 1001, "fleet.yaml")


@settings(max_examples=300, deadline=None)
@given(
    per_minute=st.integers(1, 10**7),
    capacity=st.integers(1, 10**6),
    spent=st.integers(0, 10**6),
    units=st.integers(1, 10**6),
    now_s=st.floats(0, 10**6),
)
def test_the_quoted_wait_is_enough_and_not_too_long(per_minute, capacity, spent, units, now_s):
    spent, units = min(spent, capacity), min(units, capacity)

    def bucket():
        b = Bucket(per_minute, capacity)
        assert b.take(now_s, spent)
        return b

    wait_s = bucket().wait_s(now_s, units)
    assert bucket().take(now_s + wait_s, units)
    assert bucket().take(now_s + 0.013 + (wait_s - 0.013), units)
    exact_s = max(0.0, (units + spent - capacity) * 60 / per_minute)
    assert wait_s == pytest.approx(exact_s, rel=1e-12, abs=2e-6)


@settings(max_examples=100, deadline=None)
@given(
    polls=st.lists(st.floats(0, 1000), max_size=30),
    costs=st.lists(st.integers(1, 400), min_size=1, max_size=10),
)
def test_polling_changes_nothing(polls, costs):
    """Refused requests and readings of the level leave no trace, however many."""
    polled, quiet = Bucket(7, 1000), Bucket(7, 1000)
    for cost in costs:
        assert polled.take(0.0, cost) == quiet.take(0.0, cost)
    for now_s in sorted(polls):
        polled.take(now_s, 1001)
        polled.level(now_s)
    assert polled.level(1000.0) == quiet.level(1000.0)


@settings(max_examples=100, deadline=None)
@given(
    events=st.lists(
        st.tuples(st.floats(0.001, 20), st.integers(1, 2000), st.integers(0, 2000)), max_size=40
    )
)
def test_it_agrees_with_a_plain_float_bucket(events):
    """A second implementation, naive on purpose; decisions agree but for rounding."""
    rate, capacity = 100.0, 3000.0
    level, last, now = capacity, 0.0, 0.0
    bucket = limit("token_bucket", tokens_per_minute=6000, burst_tokens=3000)
    for gap, estimate, actual in events:
        now += gap
        level, last = min(capacity, level + (now - last) * rate), now
        if abs(level - estimate) < 1e-3:
            return
        granted = level >= estimate
        assert bucket.try_reserve(now, estimate).admitted == granted
        if granted:
            level = min(capacity, level - actual)
            bucket.reconcile(now, estimate, actual)
        assert bucket.level_tokens(now) == pytest.approx(level, abs=1e-3)


def test_what_fits_exactly_is_granted_exactly():
    bucket = Bucket(7, 1000)
    assert all(bucket.take(12345.678, units) for units in (333, 333, 334))
    assert not bucket.take(12345.678, 1)


def test_requests_per_minute_counts_requests_however_large():
    rpm = limit("requests_per_minute", requests_per_minute=6, burst_requests=2)
    assert rpm.largest_estimate_tokens == inf
    assert rpm.try_reserve(0.0, 1).admitted
    assert rpm.try_reserve(0.0, 10**6).admitted
    verdict = rpm.try_reserve(0.0, 1)
    assert (verdict.reason, verdict.retry_after_s) == ("rate_limit_requests", 10.0)
    rpm.reconcile(0.0, 1, 1)
    assert not rpm.try_reserve(9.9, 1).admitted
    assert rpm.try_reserve(10.0, 1).admitted


def test_concurrency_frees_a_place_at_the_end_only():
    cap = limit("concurrency", max_in_flight=2)
    assert cap.try_reserve(0.0, 1).admitted
    assert cap.try_reserve(0.0, 1).admitted
    verdict = cap.try_reserve(1e6, 1)
    assert (verdict.reason, verdict.retry_after_s) == ("concurrency_limit", None)
    cap.reconcile(1e6, 1, 1)
    assert cap.try_reserve(1e6, 1).admitted
    cap.cancel(1e6, 1)
    assert cap.try_reserve(1e6, 1).admitted


def test_all_of_reserves_everywhere_or_nowhere():
    rpm = limit("requests_per_minute", requests_per_minute=60, burst_requests=5)
    tpm = limit("token_bucket", tokens_per_minute=6000, burst_tokens=1000)
    cap = limit("concurrency", max_in_flight=1)
    both = AllOf([rpm, cap, tpm])
    assert both.largest_estimate_tokens == 1000
    assert both.try_reserve(0.0, 800).admitted
    both.cancel(0.0, 800)
    for _ in range(10):
        assert both.try_reserve(0.0, 1500).reason == "exceeds_burst"
    assert both.try_reserve(0.0, 800).admitted
    both.reconcile(0.0, 800, 800)
    for _ in range(10):
        verdict = both.try_reserve(0.0, 900)
        assert (verdict.reason, verdict.retry_after_s) == ("rate_limit_tokens", 7.0)
    assert both.try_reserve(0.0, 200).admitted
    assert both.try_reserve(0.0, 1).reason == "concurrency_limit"
    assert AllOf([]).try_reserve(0.0, 10**9).admitted


def test_of_two_refusals_the_longer_speaks():
    slow = limit("token_bucket", tokens_per_minute=60, burst_tokens=100)
    fast = limit("requests_per_minute", requests_per_minute=60, burst_requests=1)
    for order in ([slow, fast], [fast, slow]):
        limits = AllOf(order)
        limits.try_reserve(0.0, 100)
        verdict = limits.try_reserve(0.0, 50)
        assert (verdict.reason, verdict.retry_after_s) == ("rate_limit_tokens", 50.0)


def test_never_reconciling_loses():
    """Requests that ask for 1000 tokens and use 50: a minute's budget of 60,000, for an hour."""

    def granted(name):
        bucket = limit(name, tokens_per_minute=60_000)
        count = 0
        for second in range(3600):
            for _ in range(10):
                if bucket.try_reserve(float(second), 1000).admitted:
                    bucket.reconcile(float(second), 1000, 50)
                    count += 1
        return count

    assert granted("token_bucket") == 36_000
    assert granted("reserve_only") < 3_700
