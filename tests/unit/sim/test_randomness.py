"""Draws are hashes of what they are for: fixed numbers, even spread, no correlation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fleetsim.sim.randomness import Draws, Randomness

DRAWS = Randomness(0).draws("routing/chat")

PINNED_BITS = [967291221928532674, 6750937543553188164, 11536749514061455395]
PINNED_LAST = 7189470736335372002


def test_the_numbers_are_fixed_for_ever() -> None:
    """Results of one seed must not change with a version: these are pinned."""
    assert [Draws(0, "test").bits(i) for i in range(3)] == PINNED_BITS
    assert Draws(2**63 - 1, "test").bits(5, 2) == PINNED_LAST


def test_the_same_question_has_the_same_answer() -> None:
    asked = [(3, 0), (900, 2), (3, 0), (3, 1)]
    assert DRAWS.bits(*asked[0]) == DRAWS.bits(*asked[2]) != DRAWS.bits(*asked[3])
    assert DRAWS.uniform(3) == DRAWS.uniform(3, 0)


def test_small_entities_and_attempts_never_collide() -> None:
    seen = {DRAWS.bits(entity, attempt) for entity in range(3000) for attempt in range(10)}
    assert len(seen) == 30_000


@pytest.mark.parametrize("n", [2, 3, 7, 1000])
def test_integers_are_even(n: int) -> None:
    values = [DRAWS.integer(n, entity) for entity in range(30_000)]
    assert set(values) <= set(range(n))
    counts = np.bincount(values, minlength=n)
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("n", [2, 3, 5])
def test_pairs_are_different_and_every_ordered_pair_is_as_likely(n: int) -> None:
    pairs = [DRAWS.pair(n, entity) for entity in range(30_000)]
    assert all(first != second for first, second in pairs)
    counts = np.zeros((n, n))
    for first, second in pairs:
        counts[first, second] += 1
    assert stats.chisquare(counts[~np.eye(n, dtype=bool)]).pvalue > 1e-4


def test_uniforms_fill_the_unit_interval() -> None:
    values = [DRAWS.uniform(entity) for entity in range(20_000)]
    assert 0.0 <= min(values) < 1e-3
    assert 1.0 - 1e-3 < max(values) < 1.0
    assert stats.kstest(values, "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    "other",
    [
        lambda entity: DRAWS.uniform(entity + 1),
        lambda entity: DRAWS.uniform(entity, 1),
        lambda entity: Randomness(1).draws("routing/chat").uniform(entity),
        lambda entity: Randomness(0).draws("routing/code").uniform(entity),
    ],
    ids=["next entity", "next attempt", "next seed", "other purpose"],
)
def test_neighbours_are_not_correlated(other) -> None:  # type: ignore[no-untyped-def]
    entities = range(5000)
    left, right = [DRAWS.uniform(e) for e in entities], [other(e) for e in entities]
    assert abs(np.corrcoef(left, right)[0, 1]) < 4 / np.sqrt(5000)
