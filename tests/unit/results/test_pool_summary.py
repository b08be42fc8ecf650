"""Every number of a pool, of the rates and of the cost, recomputed by a plain loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fleetsim.sim.request import Journey
from fleetsim.sim.results.facts import RunFacts
from fleetsim.sim.results.finish import finish
from fleetsim.sim.results.measures import MEASURE_COLUMNS, measures, phases
from fleetsim.sim.results.recorder import Recorder

from .fake_run import fake_facts, fake_journeys, record
from .test_slo import ASlo

WINDOW = (10.0, 30.0)


def summary_of(journeys: list[Journey], facts: RunFacts) -> dict[str, Any]:
    recorder = Recorder(None)
    record(recorder, journeys, samples=20)
    return finish(recorder, facts, ASlo(), "complete").summary


@pytest.fixture(scope="module")
def journeys() -> list[Journey]:
    journeys = fake_journeys(400)
    # One is cancelled before an engine schedules it: neither a hit nor a miss of its cache.
    early = next(j for j in journeys if j.outcome == "cancelled" and j.pool == "chat")
    early.scheduled_s = early.first_token_s = early.client_first_token_s = float("nan")
    early.delivered_tokens = 0
    return journeys


@pytest.fixture(scope="module")
def facts(journeys: list[Journey]) -> RunFacts:
    plain = fake_facts(journeys, WINDOW)
    pools = tuple(replace(p, slo_capacity_per_s=20.0) for p in plain.pools)
    # Replicas that differ, one ready late and one released early.
    replicas = tuple(
        replace(
            r,
            ready_s=10.0 * r.replica,
            stopped_s=40.0 if r.replica == 0 else float("nan"),
            steps=1000 * (r.replica + 1),
            kv_usage_max=0.5 + 0.1 * r.replica,
        )
        for r in plain.replicas
    )
    return replace(plain, pools=pools, replicas=replicas)


def test_utilisations_each_by_its_own_definition(journeys: list[Journey], facts: RunFacts) -> None:
    pool = summary_of(journeys, facts)["pools"]["chat"]
    replicas = [r for r in facts.replicas if r.pool == "chat"]
    ready_s = 40.0 + (facts.end_s - 10.0)
    use = pool["utilisation"]
    assert use["token_budget_fraction"] == pytest.approx(8e6 / (3000 * 8192))
    assert use["busy_fraction"] == pytest.approx(1.4 * facts.end_s / ready_s)
    assert use["kv_fraction_mean"] == pytest.approx(0.5 * facts.end_s / ready_s)
    assert use["kv_fraction_max"] == 0.6
    here = [
        j for j in journeys if j.pool == "chat" and WINDOW[0] <= j.request.arrival_s <= WINDOW[1]
    ]
    assert pool["offered_per_s"] == pytest.approx(len(here) / 20.0)
    assert use["offered_over_slo_capacity"] == pytest.approx(len(here) / 20.0 / 20.0)
    assert (pool["replicas"], pool["gpus"]) == (2, sum(r.gpus for r in replicas))


def test_prefix_hits_and_preemptions(journeys: list[Journey], facts: RunFacts) -> None:
    for name, pool in summary_of(journeys, facts)["pools"].items():
        here = [j for j in journeys if j.pool == name]
        scheduled = [j for j in here if j.scheduled_s == j.scheduled_s]
        assert (len(scheduled) < len(here)) == (name == "chat")
        hits = sum(j.cached_tokens for j in scheduled)
        prompts = sum(j.request.prompt_tokens for j in scheduled)
        assert pool["prefix_hit_rate"] == hits / prompts
        assert pool["preemptions"] == sum(j.preemptions for j in here) > 0
        assert pool["dispatched"] == len(here)


def test_rates(journeys: list[Journey], facts: RunFacts) -> None:
    rates = summary_of(journeys, facts)["rates"]
    done = [j for j in journeys if j.outcome == "completed"]
    inside = [j for j in done if WINDOW[0] <= j.ended_s <= WINDOW[1]]
    for name, some, length_s in (("", inside, 20.0), ("run_", done, facts.end_s)):
        prompts = sum(j.request.prompt_tokens for j in some)
        outputs = sum(j.delivered_tokens for j in some)
        assert rates[f"{name}completed_per_s"] == pytest.approx(len(some) / length_s)
        assert rates[f"{name}prompt_tokens_per_s"] == pytest.approx(prompts / length_s)
        assert rates[f"{name}output_tokens_per_s"] == pytest.approx(outputs / length_s)


def test_cost_counts_what_was_held(journeys: list[Journey], facts: RunFacts) -> None:
    cost = summary_of(journeys, facts)["cost"]
    usd = 2 * (40.0 + facts.end_s) / 3600 * 2.5
    done = [j for j in journeys if j.outcome == "completed"]
    tokens = sum(j.delivered_tokens + j.request.prompt_tokens for j in done)
    assert cost["usd"] == pytest.approx(usd)
    assert cost["usd_per_million_total_tokens"] == pytest.approx(usd / tokens * 1e6)


def test_itl_is_weighted_by_gaps(journeys: list[Journey], facts: RunFacts) -> None:
    itl = summary_of(journeys, facts)["latency"]["itl_s"]
    gaps_s = np.concatenate(
        [
            np.full(
                j.delivered_tokens - 1,
                (j.last_token_s - j.first_token_s) / (j.delivered_tokens - 1),
            )
            for j in journeys
            if j.outcome == "completed" and j.delivered_tokens > 1
        ]
    )
    assert itl["count"] == len(gaps_s)
    assert itl["mean"] == pytest.approx(gaps_s.mean())
    for percent in (50, 90, 99):
        exact_s = np.percentile(gaps_s, percent, method="inverted_cdf")
        assert itl[f"p{percent}"] == pytest.approx(exact_s, rel=0.006)


def test_measures_and_phases_of_one_journey_by_hand() -> None:
    times = {
        "client_sent_s": 1.0,
        "arrived_s": 1.5,
        "dispatched_s": 1.75,
        "queued_s": 2.0,
        "scheduled_s": 4.0,
        "first_token_s": 8.0,
        "last_token_s": 16.0,
        "client_first_token_s": 8.5,
        "ended_s": 16.5,
        "prefill_stall_s": 1.0,
        "decode_stall_s": 2.0,
        "delivered_tokens": 5,
    }
    columns = {name: np.array([times[name]]) for name in MEASURE_COLUMNS}
    assert {name: values[0] for name, values in measures(columns).items()} == {
        "client_ttft_s": 7.5,
        "gateway_ttft_s": 6.5,
        "engine_ttft_s": 6.25,
        "tpot_s": 2.0,
        "e2e_s": 15.5,
        "queue_s": 2.0,
    }
    assert {name: values[0] for name, values in phases(columns).items()} == {
        "network_in_s": 0.5,
        "gateway_s": 0.25,
        "api_s": 0.25,
        "queue_s": 2.0,
        "prefill_s": 3.0,
        "decode_s": 6.0,
        "stall_s": 3.0,
        "network_out_s": 0.5,
    }
    columns["delivered_tokens"] = np.array([1])
    assert np.isnan(measures(columns)["tpot_s"][0])


def test_a_sample_time_may_lie_in_two_parts() -> None:
    journeys = fake_journeys(5)
    recorder = Recorder(None)
    recorder._samples_limit = 7 * 3
    for journey in journeys:
        recorder.journey(journey)
    for t_s in (0.0, 0.1):
        for replica in range(2):
            recorder.sample(t_s, "chat", replica, 2, 5, 0.25, 2)
    assert [part.num_rows for part in recorder.store.parts("timeline")] == [3]
    facts = replace(fake_facts(journeys), window_start_s=0.0, window_end_s=10.0)
    pools = finish(recorder, facts, ASlo(), "complete").summary["pools"]
    assert [part.num_rows for part in recorder.store.parts("timeline")] == [3, 1]
    assert pools["chat"]["queue"] == {
        "running_mean": 4.0,
        "running_max": 4,
        "waiting_mean": 10.0,
        "waiting_max": 10,
    }
    assert pools["code"]["queue"]["waiting_mean"] is None
