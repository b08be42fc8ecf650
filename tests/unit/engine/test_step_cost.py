import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.sim.engine.step_cost import HostWork, StepCost, StepCostParameters
from fleetsim.traces.errors import InputError

GPU = StepCostParameters(
    constant_s=4e-3,
    decode_s=2e-4,
    prefill_s=5e-4,
    token_knots=(0, 64, 256),
    token_slopes_s=(1e-6, 9e-6, 8e-6),
    per_decode_s=3e-6,
    per_decode_kv_token_s=4.17e-8,
    per_prefill_square_s=7e-11,
    per_prefill_context_s=5e-11,
    per_mixed_kv_token_s=2e-8,
)
HOST = HostWork(
    base_s=1.5e-3, per_seq_s=47e-6, residue_s=2e-4, residue_per_seq_s=1e-6, fitted_seqs=128
)
MODES = ("async", "sync")

small = st.floats(0, 1e-3)
parameters = st.builds(
    StepCostParameters,
    constant_s=st.floats(1e-6, 1e-2),
    decode_s=small,
    prefill_s=small,
    token_knots=st.just((0, 64, 512)),
    token_slopes_s=st.tuples(small, small, small),
    per_decode_s=small,
    per_decode_kv_token_s=st.floats(0, 1e-6),
    per_prefill_square_s=st.floats(0, 1e-8),
    per_prefill_context_s=st.floats(0, 1e-8),
    per_mixed_kv_token_s=st.floats(0, 1e-6),
)
hosts = st.builds(
    HostWork,
    base_s=small,
    per_seq_s=small,
    residue_s=small,
    residue_per_seq_s=small,
    fitted_seqs=st.integers(0, 200),
)
costs = st.builds(StepCost, parameters, hosts, st.sampled_from(MODES))


def gpu_by_hand(n_decodes, kv_tokens, chunks):
    """The formula of docs/calibration.md, written out once more."""
    tokens = n_decodes + sum(c for c, _ in chunks)
    t = GPU.constant_s + (n_decodes > 0) * GPU.decode_s + (len(chunks) > 0) * GPU.prefill_s
    ends = (*GPU.token_knots[1:], math.inf)
    for start, end, slope in zip(GPU.token_knots, ends, GPU.token_slopes_s, strict=True):
        t += slope * max(0, min(tokens, end) - start)
    t += GPU.per_decode_s * n_decodes + GPU.per_decode_kv_token_s * kv_tokens
    t += GPU.per_mixed_kv_token_s * kv_tokens * bool(chunks)
    t += GPU.per_prefill_square_s * sum(c * c / 2 for c, _ in chunks)
    return t + GPU.per_prefill_context_s * sum(c * p for c, p in chunks)


def priced(cost, n_decodes, kv_tokens, chunks):
    return cost.step_s(
        n_decodes,
        kv_tokens,
        sum(c for c, _ in chunks),
        len(chunks),
        sum(c * c / 2 for c, _ in chunks),
        sum(c * p for c, p in chunks),
    )


@pytest.mark.parametrize(
    ("n_decodes", "kv_tokens", "chunks"),
    [
        (1, 0, []),
        (64, 64 * 2048, []),
        (65, 100_000, []),
        (0, 0, [(512, 0)]),
        (0, 0, [(2048, 4096), (100, 0)]),
        (200, 300_000, [(57, 8000)]),
        (900, 1_000_000, [(7000, 0)]),
    ],
)
def test_step_is_the_stated_formula(n_decodes, kv_tokens, chunks):
    gpu = gpu_by_hand(n_decodes, kv_tokens, chunks)
    seqs = min(n_decodes + len(chunks), 128)
    host, residue = 1.5e-3 + 47e-6 * seqs, 2e-4 + 1e-6 * seqs
    hidden = priced(StepCost(GPU, HOST, "async"), n_decodes, kv_tokens, chunks)
    added = priced(StepCost(GPU, HOST, "sync"), n_decodes, kv_tokens, chunks)
    assert hidden == pytest.approx(max(gpu, host) + residue, rel=1e-12)
    assert added == pytest.approx(gpu + host + residue, rel=1e-12)
    assert priced(StepCost(GPU), n_decodes, kv_tokens, chunks) == pytest.approx(gpu, rel=1e-12)


def test_async_hides_host_work_until_it_is_longer_than_the_gpu():
    slow_host = HostWork(base_s=0.5)
    assert StepCost(GPU, slow_host, "async").decode_step_s(8, 0) == 0.5
    quick_host = HostWork(base_s=1e-6)
    assert StepCost(GPU, quick_host, "async").decode_step_s(8, 0) == StepCost(GPU).decode_step_s(
        8, 0
    )


def test_host_work_is_not_extrapolated_beyond_the_fitted_batch():
    cost = StepCost.linear(
        constant_s=1e-3, host=HostWork(per_seq_s=47e-6, fitted_seqs=128), mode="sync"
    )
    assert cost.decode_step_s(1024, 0) == cost.decode_step_s(128, 0) > cost.decode_step_s(127, 0)


@settings(max_examples=60)
@given(costs, st.integers(1, 1100), st.integers(0, 10**7), st.integers(0, 400))
def test_a_run_is_bit_identical_to_its_steps(cost, n_decodes, kv_tokens, steps):
    one_by_one = [cost.decode_step_s(n_decodes, kv_tokens + n_decodes * j) for j in range(steps)]
    run = cost.decode_run_s(n_decodes, kv_tokens, steps)
    assert run.dtype == np.float64
    assert run.tolist() == one_by_one


@settings(max_examples=60)
@given(costs, st.integers(1, 1100), st.integers(0, 10**7))
def test_every_way_to_price_a_decode_step_agrees_exactly(cost, n_decodes, kv_tokens):
    const_s, per_kv_s, floor_s, extra_s = cost.decode_terms(n_decodes)
    inlined = max(const_s + per_kv_s * kv_tokens, floor_s) + extra_s
    assert cost.decode_step_s(n_decodes, kv_tokens) == inlined
    assert cost.step_s(n_decodes, kv_tokens, 0, 0, 0.0, 0.0) == inlined


@settings(max_examples=100)
@given(
    costs,
    st.integers(0, 1100),
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 10**5)), max_size=3),
    st.integers(1, 2000),
)
def test_a_step_that_does_more_never_takes_less(cost, n_decodes, kv_tokens, chunks, more):
    if not n_decodes and not chunks:
        n_decodes = 1
    t = priced(cost, n_decodes, kv_tokens, chunks)
    assert t > 0
    assert priced(cost, n_decodes + more, kv_tokens, chunks) >= t
    assert priced(cost, n_decodes, kv_tokens, [*chunks, (more, 0)]) >= t
    if n_decodes:
        assert priced(cost, n_decodes, kv_tokens + more, chunks) >= t
    if chunks:
        (c, p), rest = chunks[0], chunks[1:]
        assert priced(cost, n_decodes, kv_tokens, [(c + more, p), *rest]) >= t
        assert priced(cost, n_decodes, kv_tokens, [(c, p + more), *rest]) >= t


def test_closed_forms_can_be_built():
    assert StepCost.linear(constant_s=0.25).step_s(3, 999, 500, 2, 1.0, 1.0) == 0.25
    per_token = StepCost.linear(per_token_s=0.5)
    assert per_token.step_s(0, 0, 10, 1, 50.0, 0.0) == 5.0
    assert StepCost.linear(per_decode_kv_token_s=0.5, constant_s=1.0).decode_step_s(2, 10) == 6.0


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"constant_s": math.nan}, "constant_s"),
        ({"per_decode_s": -1e-9}, "per_decode_s"),
        ({"per_prefill_square_s": math.inf}, "per_prefill_square_s"),
        ({"token_knots": (0, 8), "token_slopes_s": (1e-6,)}, "1 slopes for 2"),
        ({"token_knots": (8,)}, "must rise from 0"),
        ({"token_knots": (0, 8, 8), "token_slopes_s": (0.0, 0.0, 0.0)}, "must rise from 0"),
        ({"token_knots": (0, 8), "token_slopes_s": (1e-6, -2e-6)}, "token_slopes_s"),
        ({"token_slopes_s": (math.nan,)}, "token_slopes_s"),
    ],
)
def test_impossible_parameters_are_refused(kwargs, says):
    with pytest.raises(InputError, match=says):
        StepCostParameters(**{"constant_s": 1e-3, **kwargs})


def test_steps_that_take_no_time_are_refused():
    with pytest.raises(InputError, match="takes no time"):
        StepCost(StepCostParameters())
    # a price for decodes alone would make prefill free
    with pytest.raises(InputError, match="takes no time"):
        StepCost(StepCostParameters(decode_s=1e-3))


def test_impossible_host_work_and_modes_are_refused():
    with pytest.raises(InputError, match="per_seq_s"):
        HostWork(per_seq_s=-1.0)
    with pytest.raises(InputError, match="use async or sync"):
        StepCost.linear(constant_s=1.0, mode="eager")
