"""Predictive admission: the chapter's numbers, what Retry-After promises, and who loses."""

import pytest
from unit.policies.fakes import FakePool, FakeReplica, FakeRequest

from fleetsim.policies import build


def admission(name="predictive_ttft", **params):
    return build("admission", name, params, "test")


def ask(policy, queued_tokens, prompt_tokens, rate=10_000.0):
    replica = FakeReplica(0, queued_tokens=queued_tokens)
    pool = FakePool([replica], prefill_tokens_per_s=rate)
    return policy.admit(FakeRequest(prompt_tokens=prompt_tokens), replica, pool)


@pytest.mark.parametrize(
    ("queued", "prompt", "admitted"),
    [(0, 1000, True), (9000, 1000, True), (9001, 1000, False), (0, 10_000, True)],
)
def test_the_chapters_rule_at_its_own_numbers(queued, prompt, admitted):
    policy = admission(slo_ttft_s=1.0, prefill_tok_per_s=10_000)
    assert ask(policy, queued, prompt).admitted == admitted


def test_the_rate_comes_from_the_profile_unless_measured():
    assert ask(admission(), 9000, 1000, rate=10_000.0).admitted
    assert not ask(admission(), 9000, 1000, rate=5_000.0).admitted
    assert ask(admission(prefill_tok_per_s=10_000), 9000, 1000, rate=5_000.0).admitted


def test_after_the_retry_after_it_is_admitted_if_the_replica_worked_on():
    verdict = ask(admission(prefill_tok_per_s=10_000), 14_000, 1000)
    assert (verdict.admitted, verdict.reason) == (False, "predicted_ttft")
    assert verdict.retry_after_s == 0.5
    worked_off = round(verdict.retry_after_s * 10_000)
    assert ask(admission(prefill_tok_per_s=10_000), 14_000 - worked_off, 1000).admitted


def test_a_prompt_too_long_for_an_idle_replica_is_told_so():
    verdict = ask(admission(prefill_tok_per_s=10_000), 0, 10_001)
    assert (verdict.admitted, verdict.reason) == (False, "prefill_exceeds_slo")
    assert verdict.retry_after_s is None


def test_refusals_leave_nothing_behind():
    """The chapter's admit() adds to queued_tokens and never subtracts; here it only reads."""
    policy = admission(prefill_tok_per_s=10_000)
    replica = FakeReplica(0)
    pool = FakePool([replica])
    for _ in range(1000):
        assert policy.admit(FakeRequest(), replica, pool).admitted
    assert replica.queued_tokens == 0


def test_shedding_keeps_the_promise_and_the_bad_one_serves_nobody():
    """A queue offered twice what it can do, for 100 s."""

    def serve(policy):
        free_at, met, refused = 0.0, 0, 0
        for i in range(2000):
            now = i / 20
            queued = max(0.0, free_at - now) * 10_000
            if ask(policy, queued, 1000).admitted:
                free_at = max(now, free_at) + 0.1
                met += free_at - now <= 1.0 + 1e-9
            else:
                refused += 1
        return met, refused

    always, shedding, nothing = (
        serve(admission(name)) for name in ("always", "predictive_ttft", "reject_all")
    )
    assert nothing == (0, 2000)
    assert shedding[0] == 2000 - shedding[1]
    assert shedding[0] > 900 > 40 > always[0]
