"""The summary: every number defined, checked against plain loops over the journeys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.sim.request import Journey
from fleetsim.sim.results.definitions import DEFINITIONS, definition
from fleetsim.sim.results.facts import RunFacts
from fleetsim.sim.results.finish import finish
from fleetsim.sim.results.recorder import Recorder
from fleetsim.sim.results.result import Result
from fleetsim.sim.results.tally import ConservationError

from .fake_run import fake_facts, fake_journeys, record
from .test_slo import ASlo, Bounds, Target

SLO = ASlo(
    percentiles=(Target("client_ttft_s", 50, 0.3), Target("tpot_s", 99, 0.05, 2048)),
    per_request=Bounds(client_ttft_s=1.0, tpot_s=0.05),
)


def run(
    journeys: list[Journey], facts: RunFacts | None = None, folder: Path | None = None, **chunk: int
) -> Result:
    recorder = Recorder(folder, **chunk)
    record(recorder, journeys, samples=50)
    return finish(recorder, facts or fake_facts(journeys), SLO, "complete")


@pytest.fixture(scope="module")
def journeys() -> list[Journey]:
    return fake_journeys(400)


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict):
        for name, child in node.items():
            yield from leaves(child, (*path, name))
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from leaves(child, (*path, str(index)))
    elif not isinstance(node, str):
        yield path, node


def test_every_number_has_one_definition(journeys: list[Journey]) -> None:
    used = set()
    for path, _ in leaves(run(journeys).summary):
        line = definition(path)
        assert "\n" not in line
        used.add(line)
    unused = set(DEFINITIONS.values()) - used
    assert not unused, "definitions of numbers that are not reported"
    with pytest.raises(KeyError):
        definition(("latency", "ttft", "p99"))


def test_window_counts_and_latencies_match_plain_loops(journeys: list[Journey]) -> None:
    start_s, end_s = 10.0, 30.0
    summary = run(journeys, fake_facts(journeys, (start_s, end_s))).summary
    offered = [j for j in journeys if start_s <= j.request.arrival_s <= end_s]
    completed = [j for j in offered if j.outcome == "completed"]
    assert 0 < len(completed) < len(offered) < len(journeys)
    assert summary["window"]["offered"] == len(offered)
    assert summary["window"]["completed"] == len(completed)
    assert summary["rates"]["offered_per_s"] == pytest.approx(len(offered) / 20.0)
    ttfts = [j.client_first_token_s - j.client_sent_s for j in completed]
    assert summary["latency"]["client_ttft_s"]["p99"] == np.percentile(ttfts, 99)
    assert summary["latency"]["client_ttft_s"]["mean"] == pytest.approx(np.mean(ttfts))
    tpots = [
        (j.last_token_s - j.first_token_s) / (j.delivered_tokens - 1)
        for j in completed
        if j.delivered_tokens > 1
    ]
    assert summary["latency"]["tpot_s"]["count"] == len(tpots)
    assert summary["latency"]["tpot_s"]["p90"] == pytest.approx(np.percentile(tpots, 90))
    ended = [j for j in journeys if j.outcome == "completed" and start_s <= j.ended_s <= end_s]
    tokens = sum(j.delivered_tokens for j in ended)
    assert summary["rates"]["output_tokens_per_s"] == pytest.approx(tokens / 20.0)


def test_attainment_and_goodput_count_every_offered_request(journeys: list[Journey]) -> None:
    summary = run(journeys).summary
    good = 0
    for j in journeys:
        if j.outcome != "completed" or j.client_first_token_s - j.client_sent_s > 1.0:
            continue
        gaps = j.delivered_tokens - 1
        good += gaps == 0 or (j.last_token_s - j.first_token_s) / gaps <= 0.05
    assert summary["slo"]["good"] == good
    assert summary["slo"]["attainment"] == pytest.approx(good / len(journeys))
    length_s = summary["window"]["end_s"] - summary["window"]["start_s"]
    assert summary["slo"]["goodput_per_s"] == pytest.approx(good / length_s)


def test_phases_sum_to_the_mean_of_e2e(journeys: list[Journey]) -> None:
    summary = run(journeys).summary
    total_s = sum(summary["phases_mean_s"].values())
    assert total_s == pytest.approx(summary["latency"]["e2e_s"]["mean"], rel=1e-12)


def test_littles_law_is_an_identity(journeys: list[Journey]) -> None:
    for pool in run(journeys).summary["pools"].values():
        assert pool["littles_law"]["relative_difference"] < 1e-12
    facts = fake_facts(journeys)
    pools = tuple(replace(p, requests_integral_s=p.requests_integral_s * 1.1) for p in facts.pools)
    wrong = run(journeys, replace(facts, pools=pools)).summary
    assert wrong["pools"]["chat"]["littles_law"]["relative_difference"] == pytest.approx(0.1 / 1.1)


def test_outcomes_sum_to_arrived_in_total_and_per_tenant(journeys: list[Journey]) -> None:
    summary = run(journeys).summary
    for counts in (summary["requests"], *summary["tenants"].values()):
        five = ("completed", "rejected", "failed", "cancelled", "unfinished")
        assert counts["arrived"] == sum(counts[name] for name in five)
    assert summary["requests"]["arrived"] == 400
    assert summary["requests"]["reasons"]["rejected"] == {
        "rate_limit_tokens": summary["requests"]["rejected"]
    }


def test_a_lost_request_stops_the_run(journeys: list[Journey]) -> None:
    with pytest.raises(ConservationError, match="134 requests arrived, 133 journeys ended"):
        run(journeys[:-1], fake_facts(journeys))
    with pytest.raises(ConservationError, match="journeys ended"):
        run([*journeys, journeys[0]], fake_facts(journeys))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("outcome", "finished", "outcome 'finished'"),
        ("delivered_tokens", 10**6, "exactly their tokens"),
        ("cached_tokens", 10**6, "more prefix-cache hits"),
        ("pool", "nowhere", "unknown pool 'nowhere'"),
    ],
)
def test_a_journey_that_contradicts_itself_stops_the_run(
    field: str, value: object, message: str, tmp_path: Path
) -> None:
    broken = fake_journeys(50)
    facts = fake_facts(broken)
    setattr(broken[10], field, value)
    with pytest.raises(ConservationError, match=message):
        run(broken, facts, tmp_path / "run")
    assert not (tmp_path / "run" / "status.json").exists()


def test_nothing_completed_gives_none_not_zero() -> None:
    rejected = fake_journeys(60)
    for j in rejected:
        refused = Journey(j.request, j.output_tokens, False, False)
        refused.outcome, refused.reason, refused.ended_s = "rejected", "x", j.arrived_s
        rejected[j.request.request_id] = refused
    summary = run(rejected).summary
    assert summary["latency"]["client_ttft_s"] == {
        "count": 0,
        "mean": None,
        "p50": None,
        "p90": None,
        "p99": None,
    }
    assert summary["slo"]["passed"] is False
    assert summary["slo"]["attainment"] == 0.0
    assert summary["cost"]["usd_per_million_output_tokens"] is None
    assert summary["pools"]["chat"]["prefix_hit_rate"] is None


def test_without_bounds_there_is_no_goodput(journeys: list[Journey]) -> None:
    recorder = Recorder(None)
    record(recorder, journeys, samples=5)
    slo = finish(recorder, fake_facts(journeys), ASlo(), "complete").summary["slo"]
    assert (slo["passed"], slo["attainment"], slo["goodput_per_s"]) == (None, None, None)


def test_a_burst_at_one_instant_has_no_rate(journeys: list[Journey]) -> None:
    at_once = fake_journeys(5)
    facts = replace(fake_facts(at_once), window_start_s=0.0, window_end_s=0.0)
    rates = run(at_once, facts).summary["rates"]
    assert rates["offered_per_s"] is None
    assert rates["run_completed_per_s"] > 0


def test_folder_and_memory_and_chunks_agree(journeys: list[Journey], tmp_path: Path) -> None:
    memory = run(journeys)
    folder = run(journeys, folder=tmp_path / "run")
    assert folder.summary == memory.summary
    assert folder.content_hash() == memory.content_hash()
    assert Result.load(tmp_path / "run").summary == memory.summary
    pieces = run(journeys, chunk=7).summary
    for (path, mine), (_, theirs) in zip(leaves(pieces), leaves(memory.summary), strict=True):
        assert mine == (theirs if theirs is None else pytest.approx(theirs, rel=1e-12)), path


def test_the_summary_is_strict_json(journeys: list[Journey]) -> None:
    summary = run(journeys).summary
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_queue_lengths_are_sums_over_the_pool(journeys: list[Journey]) -> None:
    result = run(journeys)
    frame = result.timeline()
    chat = frame[(frame["pool"] == "chat") & (frame["t_s"] <= result.summary["window"]["end_s"])]
    waiting = chat.groupby("t_s")["waiting"].sum()
    queue = result.summary["pools"]["chat"]["queue"]
    assert queue["waiting_max"] == waiting.max()
    assert queue["waiting_mean"] == pytest.approx(waiting.mean())


def test_prices_and_hours(journeys: list[Journey]) -> None:
    facts = fake_facts(journeys)
    cost = run(journeys, facts).summary["cost"]
    assert cost["gpu_hours"] == pytest.approx(4 * facts.end_s / 3600)
    assert cost["usd"] == pytest.approx(4 * facts.end_s / 3600 * 2.5)
    tokens = sum(j.delivered_tokens for j in journeys if j.outcome == "completed")
    assert cost["usd_per_million_output_tokens"] == pytest.approx(cost["usd"] / tokens * 1e6)
    free = replace(
        facts, replicas=tuple(replace(r, usd_per_gpu_hour=float("nan")) for r in facts.replicas)
    )
    assert run(journeys, free).summary["cost"]["usd"] is None
