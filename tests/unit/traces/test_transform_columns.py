"""Transforms of lengths and labels, and what all of them refuse."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from unit.traces.trace_measures import poisson

from fleetsim.traces import (
    InputError,
    Trace,
    load_sample,
)
from fleetsim.traces.transforms import (
    Day,
    FlashCrowd,
    Points,
    Week,
    assign,
    attach_sessions,
    block_bootstrap,
    length_map,
    limit_outputs,
    modulate,
    reburst,
    repeat,
    superpose,
    thin,
    time_scale,
    zipf_weights,
)
from fleetsim.traces.transforms.sessions import find_sessions


def test_length_map_counts_what_its_bounds_change() -> None:
    trace = poisson(1000)
    made = length_map(trace, "prompt_tokens", scale=0.5, shortest=10, longest=40)
    assert made.prompt_tokens.tolist() == np.clip(np.rint(trace.prompt_tokens / 2), 10, 40).tolist()
    record = made.metadata.transforms[-1]
    assert record["raised_to_shortest"] == (np.rint(trace.prompt_tokens / 2) < 10).sum() > 0
    assert record["cut_to_longest"] == (np.rint(trace.prompt_tokens / 2) > 40).sum() > 0
    assert made.output_tokens is trace.output_tokens
    with pytest.raises(InputError, match="makes lengths above"):
        length_map(trace, "prompt_tokens", scale=1e9)


def test_limits_and_stop_reasons() -> None:
    trace = poisson(5000)
    made = limit_outputs(trace, seed=1, output_factor=1.5, stop_by_length=0.25)
    assert made.max_tokens is not None
    exact = made.max_tokens == trace.output_tokens
    assert exact.mean() == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 5000))
    wide = np.ceil(trace.output_tokens * 1.5)
    assert (made.max_tokens[~exact] == wide[~exact]).all()
    same = limit_outputs(trace, seed=1, tokens=25)
    assert same.max_tokens is not None
    assert set(same.max_tokens.tolist()) == {25}
    record = same.metadata.transforms[-1]
    assert record["outputs_to_cut"] == (trace.output_tokens > 25).sum()


@pytest.mark.parametrize("by", ["session", "request"])
def test_labels_come_by_their_weights(by: str) -> None:
    sample = load_sample()
    made = assign(sample, "adapter", {"x": 3, "": 1}, seed=1, by=by)  # type: ignore[arg-type]
    assert made.adapter is not None
    sessions = find_sessions(sample)
    per_session = [set(made.adapter.codes[sessions.of == s]) for s in range(200)]
    assert all(len(codes) == 1 for codes in per_session) == (by == "session")
    rows = sessions.first_row if by == "session" else np.arange(len(sample))
    share = (made.adapter.codes[rows] >= 0).mean()
    assert share == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / len(rows)))


def test_zipf() -> None:
    weights = zipf_weights("tenant", 4, 2.0)
    assert weights == {f"tenant-{k}": k**-2.0 for k in range(1, 5)}


WRONG: list[tuple[Callable[[Trace], Trace], str]] = [
    (lambda t: thin(t, 0.0, seed=1), "thin: share 0.0 must be above 0 and at most 1"),
    (lambda t: thin(t, 1e-9, seed=1), "thin: share 1e-09 of 50 sessions leaves none"),
    (lambda t: superpose(t, 0.5, seed=1), "superpose: factor 0.5 must be at least 1; thin lowers"),
    (lambda t: repeat(t, 0), "repeat: times 0 must be at least 1"),
    (lambda t: reburst(t, 0, seed=1), "reburst: cv 0 must be a positive number; 1 is Poisson"),
    (lambda t: reburst(t, 1, seed=1, bin_s=0), "bin_s 0: must be a positive number of seconds"),
    (lambda t: reburst(replace(t, arrival_s=np.zeros(50)), 1, seed=1), "all requests arrive at on"),
    (lambda t: reburst(t, 1, seed=-1), "seed -1: must be a whole number"),
    (lambda t: modulate(t, []), "modulate: give at least one curve"),
    (lambda t: modulate(t, [Points(((0, 0), (99, 0), (100, 1)))]), "the curve is 0 during all of"),
    (lambda t: modulate(t, [Day(peak_to_trough=0.5)]), "peak_to_trough 0.5: must be at least 1"),
    (lambda t: modulate(t, [Week((1.0,) * 6)]), "week: 6 factors; must be 7"),
    (lambda t: modulate(t, [FlashCrowd(-1)]), "flash_crowd: at_s -1: must be at least 0"),
    (lambda t: modulate(t, [Points(((1, 1), (1, 2)))]), "points: times must rise"),
    (lambda t: length_map(t, "prompt_tokens", shortest=5, longest=4), "shortest 5 and longest 4"),
    (lambda t: limit_outputs(t, seed=1), "give exactly one of tokens and output_factor"),
    (lambda t: limit_outputs(t, seed=1, output_factor=0.5), "output_factor 0.5: must be at least"),
    (lambda t: limit_outputs(t, seed=1, tokens=1, stop_by_length=2), "stop_by_length 2: must lie"),
    (lambda t: assign(t, "tenant", {}, seed=1), "assign tenant: weights must be at least 0"),
    (lambda t: assign(t, "tenant", {"a": 0.0}, seed=1), "assign tenant: weights must be at least"),
    (lambda t: attach_sessions(t, 0, seed=1), "sessions_per_s 0: must be above 0"),
    (lambda t: block_bootstrap(t, seed=1), "block_s 600 gives 0 blocks in a trace of"),
    (lambda t: time_scale(t, 0), "time_scale 0: must be a positive number"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_wrong_parameters(change: Callable[[Trace], Trace], says: str) -> None:
    with pytest.raises(InputError) as caught:
        change(poisson(50))
    assert says in str(caught.value)


def test_a_shorter_prompt_keeps_the_block_in_which_it_ends() -> None:
    trace = replace(
        poisson(3),
        prompt_tokens=np.array([40, 32, 20], np.int32),
        block_offsets=np.array([0, 3, 5, 6]),
        block_ids=np.array([1, 2, 3, 1, 2, 1], np.uint64),
        metadata=replace(poisson(3).metadata, block_tokens=16, prefix_scope="global"),
    )
    cut = length_map(trace, "prompt_tokens", longest=17)
    assert cut.block_ids is not None
    assert cut.block_offsets is not None
    assert (cut.block_offsets.tolist(), cut.block_ids.tolist()) == ([0, 2, 4, 5], [1, 2, 1, 2, 1])
    longer = length_map(trace, "prompt_tokens", scale=2)
    assert np.array_equal(longer.block_ids, trace.block_ids)
