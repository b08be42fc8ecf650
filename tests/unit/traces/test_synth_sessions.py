"""Synthetic sessions and pools of clients: their laws, and streams that leave each other alone."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fleetsim.traces import FixedLength, InputError, LognormalLength, Trace, trace_stats
from fleetsim.traces.arrivals import unit_gaps, unit_wait, weibull_shape
from fleetsim.traces.dispersion import index_of_dispersion
from fleetsim.traces.lengths import EmpiricalLength, MixtureLength, ParetoLength, UniformLength
from fleetsim.traces.prefix_tree import find_broken_chain
from fleetsim.traces.streams import stream
from fleetsim.traces.synth import (
    Client,
    ClientWindow,
    PrefixLevel,
    SessionShape,
    compose_clients,
    synthesize_sessions,
)

SHAPE = SessionShape(
    mean_turns=4.0,
    first_tokens=UniformLength(100, 300),
    user_tokens=UniformLength(10, 60),
    output_tokens=UniformLength(50, 150),
    think_p50_s=20.0,
    think_mean_s=30.0,
    prefix=(PrefixLevel(3, 320), PrefixLevel(5, 1000, zipf=1.2)),
)


def sessions(shape: SessionShape = SHAPE, count: int = 2000, **changes: float) -> Trace:
    parameters = {"sessions_per_s": 2.0, "seed": 1, **changes}
    return synthesize_sessions(shape, sessions=count, **parameters)  # type: ignore[arg-type]


def by_row(trace: Trace, column: str) -> np.ndarray:
    return getattr(trace, column)[np.argsort(trace.source_row)]


def test_turns_are_geometric_and_sessions_poisson() -> None:
    trace = sessions(count=5000)
    assert trace.turn is not None
    per_session = np.bincount(trace.session.codes)  # type: ignore[union-attr]
    assert per_session.mean() == pytest.approx(4, abs=4 * math.sqrt(12 / 5000))
    assert (per_session == 1).mean() == pytest.approx(0.25, abs=4 * math.sqrt(0.1875 / 5000))
    gaps = np.diff(trace.arrival_s[trace.turn == 0])
    assert gaps.mean() == pytest.approx(0.5, rel=4 / math.sqrt(5000))
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.08)


def test_a_prompt_holds_the_turns_before_it() -> None:
    trace = sessions(count=200)
    prompt, output, turn = (by_row(trace, c) for c in ("prompt_tokens", "output_tokens", "turn"))
    later = np.flatnonzero(turn > 0)
    added = prompt[later] - prompt[later - 1] - output[later - 1]
    assert (added.min(), added.max()) == (10, 60)
    first = prompt[turn == 0] - 1320
    assert (first.min() >= 100, first.max() <= 300) == (True, True)


def test_pauses_are_lognormal() -> None:
    closed = sessions(replace(SHAPE, closed_loop=True), count=5000)
    assert closed.think_s is not None
    assert closed.parent is not None
    think = closed.think_s[~np.isnan(closed.think_s)]
    sigma = math.sqrt(2 * math.log(1.5))
    assert np.median(think) == pytest.approx(20, rel=4 * 1.2533 * sigma / math.sqrt(len(think)))
    assert np.log(think).std() == pytest.approx(sigma, rel=4 / math.sqrt(2 * len(think)))
    rows = np.flatnonzero(closed.parent >= 0)
    assert (np.isnan(closed.think_s) == (closed.turn == 0)).all()
    assert (closed.turn[rows] - 1 == closed.turn[closed.parent[rows]]).all()  # type: ignore[index]
    session = closed.session.codes  # type: ignore[union-attr]
    assert (session[rows] == session[closed.parent[rows]]).all()
    opened = sessions(count=5000)
    assert opened.think_s is None
    assert np.array_equal(opened.arrival_s, closed.arrival_s)  # nominal: replies at a fixed pace
    gaps = np.diff(by_row(opened, "arrival_s"))[by_row(opened, "turn")[1:] > 0]
    replies = by_row(opened, "output_tokens")[:-1][by_row(opened, "turn")[1:] > 0] * 0.02
    assert np.allclose(np.sort(gaps - replies), np.sort(think))


def test_prefixes_are_a_tree_and_histories_are_private() -> None:
    trace = sessions(count=400)
    assert trace.block_offsets is not None
    assert trace.block_ids is not None
    assert find_broken_chain(trace.block_offsets, trace.block_ids) is None
    session = trace.session.codes  # type: ignore[union-attr]
    owner = np.repeat(session, np.diff(trace.block_offsets))
    place = np.arange(len(owner)) - np.repeat(
        trace.block_offsets[:-1], np.diff(trace.block_offsets)
    )
    pairs = np.unique(np.stack([trace.block_ids, place, owner]), axis=1)
    _, first, users = np.unique(pairs[0], return_index=True, return_counts=True)
    depth = pairs[1][first]
    assert users[depth >= 1320 // 16].max() == 1  # beyond the tree: one session each
    for block, distinct in ((0, 3), (19, 3), (20, 15), (81, 15)):  # 320 and 1320 tokens
        assert len(np.unique(trace.block_ids[place == block])) == distinct
    # of 400 sessions, by Zipf: the first of three, and the first of five below it
    node = users[depth == 320 // 16]
    for share, found in (
        (1 / (1 + 1 / 2 + 1 / 3), users[depth == 0].max()),
        (6 / 11 / sum(k**-1.2 for k in range(1, 6)), node.max()),
    ):
        assert found == pytest.approx(400 * share, abs=4 * math.sqrt(400 * share * (1 - share)))
    assert node.sum() == 400


def test_changing_one_law_leaves_the_other_draws() -> None:
    base = sessions()
    other = sessions(replace(SHAPE, output_tokens=FixedLength(7), think_p50_s=25.0))
    assert np.array_equal(by_row(base, "turn"), by_row(other, "turn"))
    turn = by_row(base, "turn")
    assert np.array_equal(
        by_row(base, "prompt_tokens")[turn == 0], by_row(other, "prompt_tokens")[turn == 0]
    )
    short, longer = sessions(count=100), sessions(count=300)
    n = len(short)
    assert np.array_equal(by_row(short, "prompt_tokens"), by_row(longer, "prompt_tokens")[:n])
    assert sessions().content_hash() == base.content_hash()
    assert sessions(seed=2).content_hash() != base.content_hash()


def test_turns_that_are_too_long_are_accounted() -> None:
    cut = sessions(replace(SHAPE, longest_tokens=2000))
    whole = sessions()
    assert (cut.prompt_tokens + cut.output_tokens).max() <= 2000
    dropped = cut.metadata.rows_dropped["over_longest_tokens"]
    assert dropped == ((whole.prompt_tokens + whole.output_tokens) > 2000).sum() > 0
    with pytest.raises(InputError, match="longest_tokens 100: no turn is that short"):
        sessions(replace(SHAPE, longest_tokens=100))


# clients


def client(name: str = "a", rate: float = 2.0, windows: int = 60, **changes: object) -> Client:
    parameters: dict[str, object] = {
        "rate_rps": rate,
        "prompt_tokens": LognormalLength(200, 300, 4000),
        "output_tokens": LognormalLength(100, 150, 1000),
        **changes,
    }
    return Client(
        name,
        tuple(
            ClientWindow(600.0 * n, 600.0 * (n + 1), **parameters)  # type: ignore[arg-type]
            for n in range(windows)
        ),
    )


@pytest.mark.parametrize("law", ["gamma", "weibull"])
@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_windows_do_not_show_in_a_clients_gaps(law: str, cv: float) -> None:
    trace = compose_clients([client(rate=0.05, cv=cv, gaps=law, windows=2000)], seed=2)
    # 30 gaps a window: a renewal that began anew in each, or that was stretched to fit it, would
    # change the gaps and the counts
    n = len(trace)
    assert n == pytest.approx(60_000, abs=4 * cv * math.sqrt(60_000))
    gaps = np.diff(trace.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)
    assert index_of_dispersion(trace.arrival_s, 600) == pytest.approx(cv**2, rel=0.25)


def test_slow_clients_are_not_rounded_up() -> None:
    pool = [client(f"c{n}", rate=0.2 / 600, windows=20) for n in range(300)]
    trace = compose_clients(pool, seed=1)  # 0.2 a window, so 1200 in all
    assert len(trace) == pytest.approx(1200, abs=4 * math.sqrt(1200))


def test_clients_begin_anywhere_in_a_gap() -> None:
    pool = [client(f"c{n}", rate=0.01, cv=0.2, windows=1) for n in range(3000)]
    first = compose_clients(pool, seed=1)
    early = (first.arrival_s < 50).mean() * len(first) / 3000
    assert early == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(3000))  # half of a mean gap


def test_prompts_and_outputs_are_independent() -> None:
    trace = compose_clients([client()], seed=1)
    rank = [np.argsort(np.argsort(c)) for c in (trace.prompt_tokens, trace.output_tokens)]
    assert abs(np.corrcoef(*rank)[0, 1]) < 4 / math.sqrt(len(trace))


def test_another_client_moves_nobody() -> None:
    alone = compose_clients([client("a")], seed=1)
    both = compose_clients([client("b", rate=3), client("a")], seed=1)
    assert both.tenant is not None
    rows = np.flatnonzero(both.tenant.codes == both.tenant.names.index("a"))
    assert np.array_equal(both.prompt_tokens[rows], alone.prompt_tokens)
    assert np.allclose(np.diff(both.arrival_s[rows]), np.diff(alone.arrival_s))
    assert (len(both) - len(rows)) / len(rows) == pytest.approx(1.5, rel=0.02)
    double = compose_clients([client("a")], seed=1, rate_factor=2)
    assert trace_stats(double).rate_rps == pytest.approx(4, rel=0.02)


def test_idle_windows_are_idle() -> None:
    busy = client(windows=1).windows[0]
    pause = ClientWindow(600, 1200, 0.0)
    again = replace(busy, start_s=1200.0, end_s=1800.0)
    trace = compose_clients([Client("a", (busy, pause, again))], seed=1)
    inside = (trace.arrival_s > 600) & (trace.arrival_s < 1195)
    assert not inside.any()
    assert (trace.arrival_s > 1200).sum() == pytest.approx(1200, abs=4 * math.sqrt(1200))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: compose_clients([], seed=1), "the 0 clients of the pool make no request"),
        (lambda: compose_clients([client(), client()], seed=1), "client 'a' is in the pool twice"),
        (lambda: compose_clients([client()], seed=1, rate_factor=0), "rate_factor 0: must be a"),
        (lambda: ClientWindow(5, 5, 0.0), "client window 5 to 5 s: must end later"),
        (lambda: ClientWindow(0, 5, 1.0), "a rate above 0 needs prompt_tokens and output_tokens"),
        (lambda: ClientWindow(0, 5, -1.0), "rate_rps -1.0: must be at least 0"),
        (lambda: Client("a", (ClientWindow(0, 9, 0), ClientWindow(8, 10, 0))), "must not overlap"),
        (lambda: compose_clients([client(cv=0)], seed=1), "cv 0: must be a positive number"),
        (lambda: replace(SHAPE, mean_turns=0.5), "mean_turns 0.5: must be at least 1"),
        (lambda: replace(SHAPE, think_mean_s=1), "think_mean_s 1: must be at least think_p50_s"),
        (lambda: PrefixLevel(0, 5), "choices 0: must be at least 1"),
        (lambda: ParetoLength(5, 4, 1.0), "longest 4: must be at least shortest 5"),
        (lambda: ParetoLength(5, 9, 0.0), "alpha 0.0: must be a positive number"),
        (lambda: EmpiricalLength((), ()), "0 lengths and 0 weights"),
        (lambda: EmpiricalLength((1, 0), (1, 1)), "length 0: must be at least 1 token"),
        (lambda: MixtureLength((FixedLength(1),), (0.0,)), "weights must be at least 0"),
    ],
)
def test_wrong_parameters(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert says in str(caught.value)


# laws of gaps and lengths


@pytest.mark.parametrize("law", ["gamma", "weibull"])
@pytest.mark.parametrize("cv", [0.2, 1.0, 2.5])
def test_unit_gaps(law: str, cv: float) -> None:
    gaps = unit_gaps(law, cv, 200_000, stream(1, "test"))  # type: ignore[arg-type]
    assert gaps.mean() == pytest.approx(1, abs=5 * cv / math.sqrt(200_000))
    assert gaps.std() == pytest.approx(cv, rel=0.05)
    # who comes at a random time waits E[gap^2] / (2 E[gap])
    random = stream(1, "wait")
    waits = np.array([unit_wait(law, cv, random) for _ in range(20_000)])  # type: ignore[arg-type]
    assert waits.mean() == pytest.approx((1 + cv**2) / 2, rel=0.06)


def test_weibull_shape() -> None:
    assert weibull_shape(1.0) == pytest.approx(1.0)
    for shape in (0.3, 0.8, 2.0, 20.0):
        moments = math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2
        assert weibull_shape(math.sqrt(moments - 1)) == pytest.approx(shape)
    with pytest.raises(InputError, match="Weibull gaps need one from"):
        weibull_shape(1000)


def test_pareto_lengths() -> None:
    law = ParetoLength(100, 10_000, 1.2)
    tokens = law.draw(100_000, stream(1, "test"))
    assert (tokens.min(), tokens.max() <= 10_000) == (100, True)
    assert (tokens == 10_000).sum() < 20  # nothing piles up at the bound
    above = (100 / 10_001) ** 1.2
    for length in (200, 1000, 5000):
        share = ((100 / length) ** 1.2 - above) / (1 - above)
        error = math.sqrt(share * (1 - share) / 100_000)
        assert (tokens >= length).mean() == pytest.approx(share, abs=4 * error)


def test_empirical_lengths() -> None:
    law = EmpiricalLength.of(np.array([5, 5, 5, 9]))
    assert law == EmpiricalLength((5, 9), (3.0, 1.0))
    tokens = law.draw(40_000, stream(1, "test"))
    assert set(tokens.tolist()) == {5, 9}
    assert (tokens == 5).mean() == pytest.approx(0.75, abs=4 * math.sqrt(0.1875 / 40_000))


def test_mixtures() -> None:
    law = MixtureLength((FixedLength(3), ParetoLength(100, 200, 1.0)), (4.0, 1.0))
    tokens = law.draw(40_000, stream(1, "test"))
    assert (tokens == 3).mean() == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 40_000))
    assert tokens[tokens != 3].min() == 100
