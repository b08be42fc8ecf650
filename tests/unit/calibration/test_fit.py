"""The fit finds what is there, and says how far off it is."""

import sys
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip(
    "scipy", reason="scipy is not installed (extras calibrate, aic and dev have it)"
)

from fleetsim.calibration.batches import StepBatch, draw_batches, priced
from fleetsim.calibration.fit import (
    TOKEN_KNOTS,
    fit_steps,
    fit_uncertainty,
    predicted_s,
    region_weights,
    score_steps,
)
from fleetsim.calibration.parameters import StepCostParameters
from fleetsim.calibration.profile import Validity
from fleetsim.calibration.step_table import REGIONS, StepTable
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
    per_mixed_kv_token_s=3e-9,
)


def drawn(seed, count=400):
    return draw_batches(np.random.default_rng(seed), count, BOUNDS)


def true_steps(batches, noise=1.0) -> StepTable:
    """The batches, as long as the true step cost says, times noise."""
    shapes = priced(batches, np.ones(len(batches)))
    return priced(batches, predicted_s(TRUTH, shapes) * noise)


def test_known_coefficients_are_recovered():
    steps = true_steps(drawn(1))
    fitted = fit_steps(steps)
    assert fitted.per_decode_kv_token_s == pytest.approx(TRUTH.per_decode_kv_token_s, rel=1e-3)
    assert fitted.per_prefill_context_s == pytest.approx(TRUTH.per_prefill_context_s, rel=1e-2)
    assert fitted.per_mixed_kv_token_s == pytest.approx(TRUTH.per_mixed_kv_token_s, rel=1e-2)
    error = score_steps(fitted, len(steps), true_steps(drawn(2)))
    assert error.unseen.worst < 1e-3


def test_noise_gives_an_error_of_its_size():
    noise = np.random.default_rng(3).normal(1.0, 0.05, 1200)
    other_noise = np.random.default_rng(4).normal(1.0, 0.05, 1200)
    steps = true_steps(drawn(1), noise)
    error = score_steps(fit_steps(steps), len(steps), true_steps(drawn(2), other_noise))
    assert error.unseen.median == pytest.approx(0.05 * 0.674, rel=0.2)
    assert set(error.by_region) == set(REGIONS)
    assert all(region.batches == 400 for region in error.by_region.values())


def test_regions_have_the_same_say_however_many_steps_they_have():
    steps = true_steps(drawn(1, 100))
    few = np.ones(len(steps), bool)
    few[10:100] = False  # of the decodes ten are left
    left = steps.take(few)
    weights = region_weights(left)
    says = [weights[left.region(name)].sum() for name in REGIONS]
    assert says == pytest.approx([len(left) / 3] * 3)


def test_prices_that_fall_with_tokens_still_give_a_price_that_rises():
    batches = [StepBatch(0, 0, 1, c, 0) for c in range(16, 2000, 7)]
    falling = np.linspace(2e-2, 1e-2, len(batches))
    fitted = fit_steps(priced(batches, falling))
    cost = StepCost(fitted)
    prices = [cost.step_s(0, 0, c, 1, c * c / 2, 0.0) for c in range(1, 3000)]
    assert min(fitted.token_slopes_s) >= 0
    assert all(a <= b for a, b in pairwise(prices))


def test_fit_and_engine_price_alike():
    batches = drawn(5, 50)
    cost = StepCost(TRUTH)
    by_engine = [
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
    np.testing.assert_allclose(by_engine, true_steps(batches).seconds, rtol=1e-12)


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
        fit_steps(priced(batches, prices))


def test_without_scipy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(InputError, match=r"pip install 'fleetsim\[calibrate\]'"):
        fit_steps(priced([StepBatch(1, 1, 0, 0, 0)], np.array([1.0])))


def test_uncertainty_is_how_far_blocks_of_unseen_steps_are_off():
    """Decodes take 10 % longer than fitted, all else 20 %, and every step 30 % more or less."""
    batches = drawn(3)
    regions = np.array([batch.region for batch in batches])
    slower = np.where(regions == "decode", 1.1, 1.2)
    exact = fit_uncertainty(TRUTH, true_steps(batches, slower))
    assert exact.decode_log_sd == pytest.approx(np.log(1.1), abs=1e-4)
    assert exact.prefill_log_sd == pytest.approx(np.log(1.2), abs=1e-4)
    jitter = np.random.default_rng(4).choice([0.7, 1.3], len(batches))
    noisy = true_steps(batches, slower * jitter)
    assert fit_uncertainty(TRUTH, noisy).decode_log_sd > 0.3
    # what differs from step to step averages out in a block
    assert fit_uncertainty(TRUTH, noisy, 100).decode_log_sd == pytest.approx(np.log(1.1), abs=0.06)
