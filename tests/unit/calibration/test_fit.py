"""The fit finds what is there, and says how far off it is."""

import sys
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("scipy", reason="scipy is not installed (extras aic and dev have it)")

from fleetsim.calibration.batches import REGIONS, draw_batches
from fleetsim.calibration.fit import TOKEN_KNOTS, StepBatch, fit_step_cost, predict_s, score
from fleetsim.calibration.parameters import StepCostParameters
from fleetsim.calibration.profile import Validity
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.traces.errors import InputError

BOUNDS = Validity(
    max_decodes=1024, max_step_tokens=16_384, max_context_tokens=131_072, max_kv_tokens=500_000
)
TRUTH = StepCostParameters(
    constant_s=6e-3,
    decode_s=4e-4,
    prefill_s=7e-4,
    token_knots=TOKEN_KNOTS,
    token_slopes_s=tuple(1e-6 * (1 + j) for j in range(len(TOKEN_KNOTS))),
    per_decode_s=5e-6,
    per_decode_kv_token_s=4.2e-8,
    per_prefill_square_s=7e-10,
    per_prefill_context_s=8e-10,
)


def drawn(seed, count=400):
    return draw_batches(np.random.default_rng(seed), count, BOUNDS)


def test_known_coefficients_are_recovered():
    batches = drawn(1)
    fitted = fit_step_cost(batches, predict_s(TRUTH, batches))
    assert fitted.per_decode_kv_token_s == pytest.approx(TRUTH.per_decode_kv_token_s, rel=1e-3)
    assert fitted.per_prefill_context_s == pytest.approx(TRUTH.per_prefill_context_s, rel=1e-2)
    unseen = drawn(2)
    error = score(fitted, len(batches), unseen, predict_s(TRUTH, unseen))
    assert error.unseen.worst < 1e-3


def test_noise_gives_an_error_of_its_size():
    batches, unseen = drawn(1), drawn(2)
    noise = np.random.default_rng(3).normal(1.0, 0.05, len(batches))
    fitted = fit_step_cost(batches, predict_s(TRUTH, batches) * noise)
    noisy = predict_s(TRUTH, unseen) * np.random.default_rng(4).normal(1.0, 0.05, len(unseen))
    error = score(fitted, len(batches), unseen, noisy)
    assert error.unseen.median == pytest.approx(0.05 * 0.674, rel=0.2)
    assert set(error.by_region) == set(REGIONS)
    assert all(region.batches == 400 for region in error.by_region.values())


def test_prices_that_fall_with_tokens_still_give_a_price_that_rises():
    batches = [StepBatch(0, 0, 1, c, 0) for c in range(16, 2000, 7)]
    falling = np.linspace(2e-2, 1e-2, len(batches))
    fitted = fit_step_cost(batches, falling)
    cost = StepCost(fitted)
    prices = [cost.step_s(0, 0, c, 1, c * c / 2, 0.0) for c in range(1, 3000)]
    assert min(fitted.token_slopes_s) >= 0
    assert all(a <= b for a, b in pairwise(prices))


def test_fit_and_engine_price_alike():
    batches = drawn(5, 50)
    cost = StepCost(TRUTH)
    priced = [
        cost.step_s(
            b.n_decodes,
            b.kv_tokens,
            b.n_prefills * b.chunk_tokens,
            b.n_prefills,
            b.n_prefills * b.chunk_tokens**2 / 2,
            b.n_prefills * b.chunk_tokens * b.context_tokens,
        )
        for b in batches
    ]
    np.testing.assert_allclose(priced, predict_s(TRUTH, batches), rtol=1e-12)


def test_batches_come_from_the_seed_and_stay_within_bounds():
    batches = drawn(7)
    assert batches == drawn(7)
    assert batches != drawn(8)
    assert [b.region for b in batches] == [r for r in REGIONS for _ in range(400)]
    for b in batches:
        assert 1 <= b.tokens <= BOUNDS.max_step_tokens
        assert b.n_decodes <= BOUNDS.max_decodes
        held = b.kv_tokens + b.n_prefills * (b.chunk_tokens + b.context_tokens)
        assert held <= BOUNDS.max_kv_tokens


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_impossible_prices_are_refused(bad):
    batches = drawn(1, 20)
    prices = np.full(len(batches), 1e-2)
    prices[3] = bad
    with pytest.raises(InputError, match="positive, finite"):
        fit_step_cost(batches, prices)


def test_without_scipy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(InputError, match=r"pip install 'fleetsim\[aic\]'"):
        fit_step_cost([StepBatch(1, 1, 0, 0, 0)], np.array([1.0]))
