"""Sessions lose nothing, leap or not, and find in the cache what was said before.

Random conversations whose prompts grow, in small fleets with everything that can befall a request
(`test_conservation.fleet`). Some turns wait for the answer before them; some come at a time of
their own, often while that answer is still being generated; some conversations come twice, so that
equal answers are generated at the same time.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from invariants.fleets import STEP_S, check_conservation, run_both_ways, small_fleet, write_profile
from invariants.test_conservation import check_metering, fleet

from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.sim.results.result import Result

SEEDS = range(60)

Turn = dict[str, Any]


def conversations(seed: int) -> list[Turn]:
    """Rows of a trace, its prompts named block by block from their tokens."""
    rng = Random(seed)
    size = rng.choice([8, 16, 24])
    partial = rng.random() < 0.5
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    rows: list[Turn] = []
    said = 0

    def say(most: int) -> list[int]:
        nonlocal said
        said += most
        return list(range(said - rng.randint(1, most), said))

    def ids(tokens: list[int]) -> list[int]:
        chain = [-1]
        for begin in range(0, len(tokens) if partial else len(tokens) - size + 1, size):
            key = (chain[-1], tuple(tokens[begin : begin + size]))
            chain.append(numbers.setdefault(key, len(numbers)))
        return chain[1:]

    system = say(60)
    longest = rng.choice([6, 40, 120])
    copies = 0
    for number in range(rng.randint(3, 14)):
        start = rng.randrange(120)
        history = (system if rng.random() < 0.5 else []) + say(50)
        waits = rng.random() < 0.6
        turns: list[Turn] = []
        for turn in range(rng.randint(1, 6)):
            answer = say(longest)
            if len(history) + len(answer) > 400:
                break
            turns.append(
                {
                    "arrival_s": start * STEP_S,
                    "prompt_tokens": len(history),
                    "output_tokens": len(answer),
                    "max_tokens": "",
                    "tenant": rng.choice(["a", "b"]),
                    "priority": rng.randint(0, 2),
                    "session": f"s{number}",
                    "turn": turn,
                    "parent_turn": turn - 1 if turn else "",
                    "think_s": rng.choice([0.0, STEP_S, 0.1]) if waits and turn else "",
                    "block_ids": ids(history),
                    "block_tokens": size,
                }
            )
            start += rng.randint(0, 60)
            forgets = rng.random() < 0.1  # as if its thinking were left out
            history = history + ([] if forgets else answer) + say(40)
        rows += turns
        if rng.random() < 0.3:
            copies += 1
            later = rng.randint(0, 8) * STEP_S
            rows += [
                t | {"session": f"copy{copies}", "arrival_s": t["arrival_s"] + later} for t in turns
            ]
    rng.shuffle(rows)
    return sorted(rows, key=lambda row: (row["arrival_s"], row["turn"]))


def keywords(seed: int) -> dict[str, Any]:
    """The fleet; half of them are too small for what comes."""
    rng = Random(seed)
    some = fleet(seed)
    some["workload"].pop("closed_loop", None)
    some["engine"]["enable_prefix_caching"] = True
    if rng.random() < 0.7:
        some["engine"] |= {"scheduling_policy": "fcfs", "long_prefill_token_threshold": 0}
        some["router"]["prefix_knowledge"] = rng.choice(["none", "own_history"])
    return some


@cache
def _run(seed: int) -> tuple[int, Result]:
    rows = conversations(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = write_profile(folder, api_latency_s=[0.0, STEP_S, 0.013][seed % 3])
        scenario = small_fleet(folder, rows, profile=profile, **keywords(seed))
        return len(rows), run_both_ways(scenario)


def check(seed: int) -> Result:
    rows, result = _run(seed)
    check_conservation(result)
    check_metering(result)
    requests = result.summary["requests"]
    table = result.requests()
    if "measurement" not in keywords(seed):
        # no horizon: everybody came, or waited in vain
        never = requests.get("turns_not_issued", {})
        assert "run_ended" not in never
        assert requests["arrived"] + sum(never.values()) == rows
    assert (table["arrival_s"] == table["client_sent_s"]).all()
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_nothing_is_lost_in_many(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def test_the_seeds_do_what_can_happen() -> None:
    """Else the tests above would prove less than they say."""
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        _, result = _run(seed)
        requests = result.summary["requests"]
        counts.update(requests.get("turns_not_issued", {}))
        counts["arrived"] += requests["arrived"]
        counts["preemptions"] += result.summary["pools"]["p"]["preemptions"]
        counts["hits"] += int((result.requests()["cached_tokens"] > 100).sum())
    for name in ("parent_rejected", "parent_cancelled", "run_ended"):
        assert counts[name] > 5, counts
    assert counts["arrived"] > 1000
    assert counts["preemptions"] > 30
    assert counts["hits"] > 100


def test_leaps_are_taken_over_known_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    leaps: Counter[str] = Counter()
    leap = Scheduler.leap

    def counted(self: Scheduler, steps: int) -> None:
        if self.chained and steps > 1:
            leaps["waiting" if self.n_waiting else "all"] += 1
        leap(self, steps)

    monkeypatch.setattr(Scheduler, "leap", counted)
    for seed in range(10):
        _run.__wrapped__(seed)
    assert leaps["all"] > 20
    assert leaps["waiting"] > 20
