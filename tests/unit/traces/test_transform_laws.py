"""Each transform's own law, within sampling error that is stated, and what it refuses."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleetsim.traces import (
    Categorical,
    InputError,
    Trace,
    UniformLength,
    load_sample,
    load_trace,
    synthesize,
    trace_stats,
)
from fleetsim.traces.dispersion import index_of_dispersion
from fleetsim.traces.transforms import (
    Day,
    FlashCrowd,
    Points,
    Week,
    assign,
    attach_sessions,
    block_bootstrap,
    dequantize,
    head,
    length_map,
    limit_outputs,
    modulate,
    reburst,
    repeat,
    superpose,
    thin,
    time_scale,
    window,
    zipf_weights,
)
from fleetsim.traces.transforms.sessions import find_sessions


def poisson(requests: int = 20_000, rate_rps: float = 10.0) -> Trace:
    return synthesize(
        requests=requests,
        rate_rps=rate_rps,
        prompt_tokens=UniformLength(10, 100),
        output_tokens=UniformLength(1, 50),
        seed=7,
    )


def reuse(trace: Trace) -> float:
    share = trace_stats(trace).ideal_prefix_hit_share
    assert share is not None
    return share


def counts(trace: Trace, bins: int, end_s: float) -> np.ndarray:
    return np.histogram(trace.arrival_s, bins, (0, end_s))[0]


@pytest.fixture(scope="module")
def mooncake(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/mooncake_fast25/conversation_trace.jsonl.gz")


@pytest.fixture(scope="module")
def azure_conv(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/azure_2023/AzureLLMInferenceTrace_conv.csv")


# window, head, time_scale


def test_a_window_holds_its_start_and_not_its_end() -> None:
    trace = repeat(poisson(requests=1), 5)
    trace = replace(trace, arrival_s=np.arange(5.0))
    assert window(trace, 1, 3).source_row.tolist() == [0, 0]
    assert window(trace, 1, 3).arrival_s.tolist() == [0.0, 1.0]
    with pytest.raises(InputError, match="window 7 to 9 s: nothing arrives in it; the last"):
        window(trace, 7, 9)
    with pytest.raises(InputError, match="must begin at 0 or later and end later"):
        window(trace, 3, 3)


def test_time_scale_scales_thinking_too() -> None:
    trace = replace(
        poisson(3), parent=np.array([-1, 0, -1]), think_s=np.array([np.nan, 6.0, np.nan])
    )
    fast = time_scale(trace, 3)
    assert np.allclose(fast.arrival_s * 3, trace.arrival_s)
    assert np.array_equal(fast.think_s, [np.nan, 2.0, np.nan], equal_nan=True)
    assert fast.metadata.transforms[-1] == {
        "name": "time_scale",
        "factor": 3,
        "think_s_scaled": True,
    }
    assert trace.head(2).content_hash() == head(trace, 2).content_hash()
    assert trace.time_scaled(3).content_hash() == fast.content_hash()


# thin, superpose, repeat


@pytest.mark.parametrize("by", ["session", "request"])
def test_thin_keeps_its_share(by: str) -> None:
    sample = load_sample()
    units = len(find_sessions(sample)) if by == "session" else len(sample)
    thinned = thin(sample, 0.3, seed=1, by=by)  # type: ignore[arg-type]
    kept = len(find_sessions(thinned)) if by == "session" else len(thinned)
    assert kept == pytest.approx(0.3 * units, abs=4 * math.sqrt(units * 0.3 * 0.7))


def test_thin_by_session_keeps_reuse_and_by_request_breaks_it() -> None:
    sample = load_sample()
    assert reuse(thin(sample, 0.3, seed=1)) == pytest.approx(reuse(sample), abs=0.03)
    assert reuse(thin(sample, 0.3, seed=1, by="request")) < reuse(sample) - 0.1


def test_a_smaller_share_is_part_of_a_larger_one() -> None:
    sample = load_sample()
    small, large = (set(thin(sample, p, seed=3).source_row.tolist()) for p in (0.2, 0.6))
    assert small < large


def test_superpose_multiplies_the_rate_and_keeps_reuse() -> None:
    sample = load_sample()
    more = superpose(sample, 3, seed=1)
    assert len(more) == 3 * len(sample)
    # a copy's system prompts are hits that were misses in the first; the histories are its own
    assert reuse(more) == pytest.approx(reuse(sample), abs=0.001)
    assert len(find_sessions(more)) == 3 * len(find_sessions(sample))
    # whole sessions: what runs over the end is counted, and all the rest comes within the trace
    past = int((more.arrival_s > sample.arrival_s[-1]).sum())
    assert more.metadata.transforms[-1]["requests_past_end"] == past
    assert past < 0.1 * len(more)


def test_superposed_sessions_keep_their_tempo_and_share_only_system_prompts() -> None:
    sample = load_sample()
    more = superpose(sample, 2, seed=1)
    assert more.session is not None
    assert sample.session is not None
    copied = np.array([name.endswith("~1") for name in more.session.names])[more.session.codes]
    for name in sample.session.names[100:120]:
        rows = [sample.session.names.index(name), more.session.names.index(f"{name}~1")]
        original, copy = (
            trace.arrival_s[trace.session.codes == row]  # type: ignore[union-attr]
            for trace, row in zip((sample, more), rows, strict=True)
        )
        assert np.allclose(np.diff(original), np.diff(copy))
    # block sets of copy 0 and copy 1: in common is exactly what two sessions of the sample share
    assert more.block_offsets is not None
    assert more.block_ids is not None
    assert sample.block_offsets is not None
    owner = np.repeat(copied, np.diff(more.block_offsets))
    common = np.intersect1d(more.block_ids[owner], more.block_ids[~owner])
    sessions = np.repeat(sample.session.codes, np.diff(sample.block_offsets))
    pairs = np.unique(np.stack([sample.block_ids, sessions]), axis=1)
    shared = (np.unique(pairs[0], return_counts=True)[1] > 1).sum()
    assert len(common) == shared > 0


def test_a_larger_factor_adds_sessions_and_moves_none() -> None:
    sample = load_sample()

    def requests(factor: float) -> set[tuple[str | None, float, int]]:
        made = superpose(sample, factor, seed=2)
        assert made.session is not None
        names = [made.session[row] for row in range(len(made))]
        at = np.round(made.arrival_s, 6).tolist()
        return set(zip(names, at, made.source_row.tolist(), strict=True))

    some, more, most = requests(1.4), requests(1.8), requests(2.5)
    assert requests(1) < some < more < most
    sessions = len(find_sessions(sample))
    added = len({name for name, _, _ in some if name and name.endswith("~1")})
    assert added == pytest.approx(0.4 * sessions, abs=4 * math.sqrt(sessions * 0.24))


def test_superpose_once_is_the_trace_itself() -> None:
    sample = load_sample()
    assert superpose(sample, 1, seed=1).content_hash() == sample.content_hash()
    assert repeat(sample, 1).content_hash() == sample.content_hash()


def test_names_of_copies_never_meet() -> None:
    trace = replace(poisson(3), session=Categorical.from_values(["a", "a~1", "b~x"]))
    again = superpose(superpose(trace, 2, seed=1), 2, seed=2)
    assert again.session is not None
    assert len(again.session.names) == 12
    assert {"a", "a~1", "a~2", "a~3", "a~1~3"} <= set(again.session.names)


def test_sessions_of_a_trace_without_names_are_told_by_its_chains(mooncake: Trace) -> None:
    sessions = find_sessions(mooncake)
    assert sessions.told_by == "prefix chains"
    assert len(sessions) == 7373  # distinct second blocks; the first one is in every request
    double = superpose(mooncake, 2, seed=3)
    assert reuse(double) == pytest.approx(reuse(mooncake), abs=1e-4)
    assert reuse(thin(mooncake, 0.3, seed=1)) == pytest.approx(reuse(mooncake), abs=0.02)
    assert reuse(thin(mooncake, 0.3, seed=1, by="request")) < reuse(mooncake) - 0.1


def test_repeat_goes_on_at_the_same_rate() -> None:
    trace = poisson()
    twice = repeat(trace, 2)
    assert trace_stats(twice).rate_rps == pytest.approx(trace_stats(trace).rate_rps, rel=1e-3)
    assert np.array_equal(twice.source_row, np.tile(np.arange(len(trace)), 2))


# dequantize


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_dequantized_mooncake_is_nearly_poisson(mooncake: Trace, seed: int) -> None:
    raw = mooncake.arrival_s
    assert trace_stats(mooncake).interarrival_cv == pytest.approx(3.03, abs=0.005)
    measured = [index_of_dispersion(raw, w) for w in (1, 10, 60)]
    assert measured == pytest.approx([7.9, 2.1, 2.9], abs=0.05)
    spread = dequantize(mooncake, seed=seed)
    # 3,540 windows of 1 s, 354 of 10 s: standard errors 0.024 and 0.11; 60 s hardly changes
    assert trace_stats(spread).interarrival_cv == pytest.approx(1.01, abs=0.03)
    assert index_of_dispersion(spread.arrival_s, 1) == pytest.approx(1.05, abs=0.08)
    assert index_of_dispersion(spread.arrival_s, 10) == pytest.approx(1.5, abs=0.2)
    assert index_of_dispersion(spread.arrival_s, 60) == pytest.approx(2.9, abs=0.15)
    assert spread.metadata.time_resolution_s is None
    assert "neither shown nor excluded" in spread.metadata.warnings[-1]


def test_dequantize_never_leaves_a_tick() -> None:
    stamps = np.sort(np.random.Generator(np.random.Philox(1)).integers(0, 50, 1000)) * 2.0
    trace = replace(poisson(1000), arrival_s=stamps - stamps[0])
    spread = dequantize(trace, 2.0, seed=1)
    late = np.sort(spread.source_row)  # by source row again
    order = np.argsort(spread.source_row)
    moved = spread.arrival_s[order] - trace.arrival_s[late]
    assert np.ptp(moved) < 2.0
    assert np.std(moved) == pytest.approx(2 / math.sqrt(12), rel=0.05)


def test_dequantize_needs_the_right_tick() -> None:
    trace = replace(poisson(100), arrival_s=np.arange(100) // 5 * 3.0)
    with pytest.raises(InputError, match="does not know on what grid it was stamped; give tick_s"):
        dequantize(trace, seed=1)
    with pytest.raises(InputError, match="19 of 19 stamps follow the one before sooner"):
        dequantize(trace, 10.0, seed=1)
    with pytest.raises(InputError, match=r"tick_s 0\.0 must be a positive number"):
        dequantize(trace, 0.0, seed=1)


# reburst, modulate


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0, 4.0])
def test_reburst_hits_its_cv_and_keeps_the_rate(cv: float) -> None:
    trace = poisson(40_000)
    made = reburst(trace, cv, seed=3, bin_s=4000)  # one bin: a constant rate
    # the error of a CV estimate: Gamma gaps have a kurtosis of 3 + 6 cv^2
    error = cv * math.sqrt((2 + 6 * cv**2) / 4 / 40_000 + cv**2 / 40_000)
    assert trace_stats(made).interarrival_cv == pytest.approx(cv, abs=4 * error)
    assert made.arrival_s[-1] == pytest.approx(trace.arrival_s[-1])
    assert np.array_equal(made.prompt_tokens, trace.prompt_tokens)
    record = made.metadata.transforms[-1]
    assert record["reached_cv"] == pytest.approx(trace_stats(made).interarrival_cv, abs=1e-4)
    # a renewal process has an IDC of cv^2 at windows of many gaps (100 at 10 s)
    assert record["reached_idc_10s"] == pytest.approx(cv**2, rel=0.25, abs=0.05)


def test_reburst_follows_the_rate_of_the_trace(azure_conv: Trace) -> None:
    made = reburst(azure_conv, 2, seed=1)
    record = made.metadata.transforms[-1]
    assert record["reached_cv_at_constant_rate"] == pytest.approx(2, abs=0.1)
    assert set(record) >= {"reached_cv", "reached_idc_1s", "reached_idc_10s", "reached_idc_60s"}
    end_s = float(azure_conv.arrival_s[-1])
    before, after = (counts(trace, 12, end_s) for trace in (azure_conv, made))
    # a count of N has a spread of cv sqrt(N), and the place of the whole drifts as much
    assert (np.abs(after - before) < 4 * 2 * np.sqrt(before)).all()
    assert np.corrcoef(before, after)[0, 1] > 0.9
    assert 16 < record["reached_idc_60s"] < 16 + 2 * 2**2 + 4  # the trace's own, and the gaps'


def test_closed_loops_move_with_their_start() -> None:
    trace = replace(
        poisson(4),
        arrival_s=np.array([0.0, 10.0, 12.0, 20.0]),
        parent=np.array([-1, -1, 1, 2]),
        think_s=np.array([np.nan, np.nan, 1.0, 1.0]),
    )
    made = reburst(trace, 1, seed=1)
    assert np.allclose(made.arrival_s - made.arrival_s[1], [-10, 0, 2, 10])
    assert np.array_equal(made.parent, trace.parent)


@pytest.mark.parametrize(
    "curve",
    [
        Day(period_s=2000, peak_at_s=1000),
        Day(period_s=2000, peak_at_s=1000, shape="log_sinusoid"),
        FlashCrowd(500, factor=6, ramp_s=60, hold_s=200, decay_s=100),
        Week((1, 1, 2, 1, 1, 0, 0.5), first_day=4, day_s=2000 / 7),
        Points(((0, 1), (1000, 3), (1500, 0), (1800, 2))),
    ],
    ids=lambda curve: f"{type(curve).__name__} {getattr(curve, 'shape', '')}",
)
def test_modulate_follows_its_curve(curve: Day | FlashCrowd | Week | Points) -> None:
    trace = poisson(20_000)
    end_s = float(trace.arrival_s[-1])
    made = modulate(trace, [curve], bin_s=end_s)
    assert made.arrival_s[-1] == pytest.approx(end_s)
    fine = (np.arange(40_000) + 0.5) / 40_000 * end_s
    expected = curve.rate(fine).reshape(40, 1000).sum(axis=1)
    expected *= len(trace) / expected.sum()
    # 5 standard errors of a Poisson count; 1 for what lies on a bin's edge
    assert (np.abs(counts(made, 40, end_s) - expected) <= 5 * np.sqrt(expected) + 1).all()


def test_the_tenfold_day_is_tenfold() -> None:
    at = np.linspace(0, 86400, 100_001)
    for shape, peak_over_mean in (("sinusoid", 1.82), ("log_sinusoid", 2.33)):
        rate = Day(shape=shape).rate(at)  # type: ignore[arg-type]
        assert rate.max() / rate.min() == pytest.approx(10)
        assert rate.max() / rate[:-1].mean() == pytest.approx(peak_over_mean, abs=0.005)
        assert at[np.argmax(rate)] == 43200


def test_curves_multiply_and_what_is_finer_than_a_bin_stays() -> None:
    trace = reburst(poisson(20_000), 2, seed=1, bin_s=4000)
    end_s = float(trace.arrival_s[-1])
    level = modulate(trace, [Points(((0, 1),))], bin_s=end_s)
    assert np.allclose(level.arrival_s, trace.arrival_s)
    twice = modulate(trace, [Points(((0, 1), (end_s, 3)))] * 2, bin_s=end_s)
    halves = counts(twice, 2, end_s)
    assert halves[1] / halves[0] == pytest.approx((27 - 8) / (8 - 1), rel=0.1)  # of (1 + t)^2
    assert index_of_dispersion(modulate(trace, [Points(((0, 1),))]).arrival_s, 1) > 2.5


# sessions, bootstrap


@pytest.mark.parametrize("cv", [1.0, 2.0])
def test_attached_sessions_begin_at_their_rate(cv: float) -> None:
    sample = load_sample()
    made = attach_sessions(sample, 5, seed=1, cv=cv)
    old, new = find_sessions(sample), find_sessions(made)
    begins = made.arrival_s[new.first_row]
    gaps = np.diff(begins)
    assert gaps.mean() == pytest.approx(0.2, rel=4 * cv / math.sqrt(len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.15)
    since = [t.arrival_s - t.arrival_s[s.first_row][s.of] for t, s in ((sample, old), (made, new))]
    by_row = [np.argsort(t.source_row) for t in (sample, made)]
    assert np.allclose(since[0][by_row[0]], since[1][by_row[1]])


def test_bootstrap_draws_whole_sessions_by_block() -> None:
    sample = load_sample()
    sizes = [len(block_bootstrap(sample, seed=seed, block_s=60)) for seed in range(40)]
    # unbiased: the mean of 40 resamples is the trace, within 4 of its standard errors
    assert np.mean(sizes) == pytest.approx(len(sample), abs=4 * np.std(sizes) / math.sqrt(40))
    made = block_bootstrap(sample, seed=1, block_s=60)
    drawn = np.unique(made.source_row)
    of = find_sessions(sample).of
    assert set(np.flatnonzero(np.isin(of, of[drawn]))) == set(drawn)  # no session in part
    assert made.metadata.transforms[-1]["blocks"] == 10
    assert reuse(made) == pytest.approx(reuse(sample), abs=0.05)


# lengths and labels


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


# exact cases


def test_turns_within_a_stamp_keep_their_order() -> None:
    trace = replace(
        poisson(400),
        arrival_s=np.arange(400) // 8 * 3.0,
        session=Categorical.from_values([f"s{n % 2 + 2 * (n // 8)}" for n in range(400)]),
        turn=np.array([n % 8 // 2 for n in range(400)], np.int32),
    )
    spread = dequantize(trace, seed=1, tick_s=3.0)
    assert spread.session is not None
    assert spread.turn is not None
    for code in range(100):
        assert spread.turn[spread.session.codes == code].tolist() == [0, 1, 2, 3]
    assert not np.array_equal(spread.source_row, trace.source_row)  # sessions do mix


def test_curves_at_given_times() -> None:
    at = np.array([0.0, 5.0, 10.0, 30.0, 60.0, 70.0, 75.0])
    week = Week((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), first_day=5, day_s=10.0)
    assert week.rate(at).tolist() == [6, 6, 7, 2, 5, 6, 6]
    crowd = FlashCrowd(10, factor=5, ramp_s=20, hold_s=30, decay_s=10)
    expected = [1, 1, 1, 5, 5, 1 + 4 * math.exp(-1), 1 + 4 * math.exp(-1.5)]
    assert crowd.rate(at) == pytest.approx(np.array(expected))
    step = FlashCrowd(5, factor=3, ramp_s=0, hold_s=25, decay_s=0)
    assert step.rate(at).tolist() == [1, 3, 3, 3, 1, 1, 1]
    assert Points(((5, 1), (10, 3))).rate(at).tolist() == [1, 1, 3, 3, 3, 3, 3]
    assert Day(4, period_s=20, peak_at_s=5).rate(np.array([5.0, 10.0, 15.0])) == pytest.approx(
        np.array([4, 2.5, 1])
    )


def test_a_bootstrapped_block_is_a_block_of_the_trace() -> None:
    trace = poisson(2000)
    made = block_bootstrap(trace, seed=1, block_s=20)
    length_s = made.metadata.transforms[-1]["block_s"]
    # back on the trace's clock: every request is at its old place within some block
    offset = made.arrival_s - trace.arrival_s[made.source_row]
    offset -= offset[0]
    assert np.allclose(offset / length_s, np.rint(offset / length_s), atol=1e-6)
    assert made.arrival_s[-1] == pytest.approx(trace.arrival_s[-1], abs=length_s)
    slots = np.rint(made.arrival_s // length_s)
    assert len(np.unique(slots)) >= 9


def test_requests_without_a_label_belong_to_whom_they_wait_for() -> None:
    trace = replace(
        poisson(6),
        session=Categorical.from_values(["a", None, "b", None, None, "a"]),
        parent=np.array([-1, 0, -1, 2, 3, -1]),
    )
    assert find_sessions(trace).of.tolist() == [0, 0, 1, 1, 1, 0]
    assert find_sessions(replace(trace, session=None)).of.tolist() == [0, 0, 1, 1, 1, 2]
    assert find_sessions(replace(trace, session=None)).told_by == "parent"
    assert len(find_sessions(replace(trace, session=None, parent=None))) == 6


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
