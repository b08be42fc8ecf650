"""Transforms that take or add requests: their laws, within stated sampling error."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from unit.traces.trace_measures import poisson, reuse

from fleetsim.traces import (
    Categorical,
    InputError,
    Trace,
    load_sample,
    load_trace,
    trace_stats,
)
from fleetsim.traces.transforms import (
    attach_sessions,
    block_bootstrap,
    head,
    repeat,
    superpose,
    thin,
    time_scale,
    window,
)
from fleetsim.traces.transforms.sessions import find_sessions


@pytest.fixture(scope="module")
def mooncake(shared_dir: Path) -> Trace:
    return load_trace(shared_dir / "traces/mooncake_fast25/conversation_trace.jsonl.gz")


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
