"""What every transform keeps: rows, chains, parents, its own trace, and the same bytes."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.traces import Categorical, Trace, TraceMetadata, build_segments
from fleetsim.traces.prefix_tree import find_broken_chain
from fleetsim.traces.transforms import (
    Day,
    FlashCrowd,
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
)

ALL: dict[str, Callable[[Trace, int], Trace]] = {
    "window": lambda t, s: window(t, 0, 0.6 * t.arrival_s[-1]),
    "head": lambda t, s: head(t, max(len(t) // 2, 1)),
    "time_scale": lambda t, s: time_scale(t, 4),
    "superpose": lambda t, s: superpose(t, 2.5, seed=s),
    "thin": lambda t, s: thin(t, 0.999, seed=s),
    "thin by request": lambda t, s: thin(t, 0.999, seed=s, by="request"),
    "repeat": lambda t, s: repeat(t, 3),
    "dequantize": lambda t, s: dequantize(t, 1.0, seed=s),
    "reburst": lambda t, s: reburst(t, 2, seed=s, bin_s=5),
    "modulate": lambda t, s: modulate(t, [Day(period_s=20), FlashCrowd(5)], bin_s=5),
    "length_map": lambda t, s: length_map(t, "prompt_tokens", scale=0.5, longest=50),
    "max_tokens": lambda t, s: limit_outputs(t, seed=s, output_factor=2, stop_by_length=0.5),
    "assign": lambda t, s: assign(t, "tenant", {"a": 3, "b": 1, "": 1}, seed=s),
    "attach_sessions": lambda t, s: attach_sessions(t, 0.5, seed=s),
    "block_bootstrap": lambda t, s: block_bootstrap(t, seed=s, block_s=t.arrival_s[-1] / 4),
}
DRAWS = [
    name
    for name in ALL
    if name not in ("window", "head", "time_scale", "repeat", "modulate", "length_map")
]


def make(turns: list[int], ticks: list[int], closed: list[bool]) -> Trace:
    """Sessions over one system prompt: stamps of 1 s, growing chains, some in closed loops."""
    rows = []
    for session, (count, start) in enumerate(zip(turns, ticks, strict=True)):
        rows += [(start + 3 * turn, session, turn) for turn in range(count)]
    rows.sort()
    n = len(rows)
    place = {(session, turn): row for row, (_, session, turn) in enumerate(rows)}
    chains = [[0, 1, *(2 + 10 * s + b for b in range(t + 1))] for _, s, t in rows]
    waits = [t > 0 and closed[s] for _, s, t in rows]
    at = np.array([tick for tick, _, _ in rows], np.float64)
    return Trace(
        arrival_s=at - at[0],
        prompt_tokens=np.array([16 * len(c) for c in chains], np.int32),
        output_tokens=np.array([4 + s for _, s, _ in rows], np.int32),
        source_row=np.arange(n),
        block_offsets=np.cumsum([0, *(len(c) for c in chains)]),
        block_ids=np.array([b for c in chains for b in c], np.uint64),
        session=Categorical.from_values([f"s{s}" for _, s, _ in rows]),
        turn=np.array([t for _, _, t in rows], np.int32),
        parent=np.array([place[s, t - 1] if t else -1 for _, s, t in rows]),
        think_s=np.array([1.5 if w else np.nan for w in waits]),
        metadata=TraceMetadata(
            "test", n, n, block_tokens=16, prefix_scope="global", t0_iso="2024-05-10T00:00:00"
        ),
    )


SESSIONS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 40), st.booleans()), min_size=4, max_size=12
).filter(lambda sessions: len({start for _, start, _ in sessions}) > 2)


def content(trace: Trace) -> list[bytes]:
    found = []
    for field in fields(trace):
        value = getattr(trace, field.name)
        if isinstance(value, np.ndarray):
            found.append(value.tobytes())
        elif isinstance(value, Categorical):
            found.append(value.codes.tobytes() + repr(value.names).encode())
        else:
            found.append(repr(value).encode())
    return found


@pytest.mark.parametrize("name", ALL)
@given(SESSIONS, st.integers(0, 5))
def test_law_of_every_transform(
    name: str, sessions: list[tuple[int, int, bool]], seed: int
) -> None:
    trace = make(*(list(column) for column in zip(*sessions, strict=True)))
    before = content(trace)
    made = ALL[name](trace, seed)
    assert content(trace) == before, "the input changed"
    assert content(ALL[name](trace, seed)) == content(made), "not the same bytes again"

    # every row is accounted for: which of the source are left, which are there more than once
    metadata = made.metadata
    assert metadata.rows_read == len(trace)
    distinct = len(np.unique(made.source_row))
    assert metadata.rows_made == len(made) - distinct
    assert sum(metadata.rows_dropped.values()) == len(trace) - distinct

    # chains are chains, and as long as they were unless the prompts are not
    assert made.block_offsets is not None
    assert made.block_ids is not None
    assert find_broken_chain(made.block_offsets, made.block_ids) is None
    build_segments(made)
    if name != "length_map":
        assert np.array_equal(np.diff(made.block_offsets), made.prompt_tokens // 16)

    # turns of a session come in order, each after its parent, which is the turn before it
    assert made.session is not None
    assert made.turn is not None
    assert made.parent is not None
    assert made.think_s is not None
    for code in range(len(made.session.names)):
        turns = made.turn[made.session.codes == code]
        assert (np.diff(turns) > 0).all()
    linked = np.flatnonzero(made.parent >= 0)
    above = made.parent[linked]
    assert (made.session.codes[above] == made.session.codes[linked]).all()
    assert (made.turn[above] == made.turn[linked] - 1).all()
    whole = name not in ("window", "head", "thin by request")
    if whole:  # nobody lost a turn
        assert len(linked) == (made.turn > 0).sum()
        assert trace.think_s is not None
        assert np.isnan(made.think_s).sum() == np.isnan(trace.think_s[made.source_row]).sum()

    record = metadata.transforms[-1]
    assert record["name"] == {"thin by request": "thin"}.get(name, name)
    assert ("seed" in record) == (name in DRAWS)


@pytest.mark.parametrize("name", DRAWS)
def test_another_seed_is_another_trace(name: str) -> None:
    trace = make([4] * 40, list(range(40)), [False] * 40)
    change = ALL[name]
    if name.startswith("thin"):
        change = lambda t, s: thin(t, 0.5, seed=s)  # noqa: E731
    assert change(trace, 1).content_hash() != change(trace, 2).content_hash()


def test_a_transform_moves_no_draw_of_another_one() -> None:
    trace = make([3] * 40, list(range(40)), [False] * 40)
    plain = assign(trace, "tenant", {"a": 1, "b": 1}, seed=5)
    after = assign(reburst(trace, 2, seed=5), "tenant", {"a": 1, "b": 1}, seed=5)
    assert plain.tenant is not None
    assert after.tenant is not None
    rows = np.argsort(after.source_row)
    assert [after.tenant[r] for r in rows] == [plain.tenant[r] for r in range(len(trace))]


def test_a_second_use_draws_anew() -> None:
    trace = make([1] * 4000, [n // 10 for n in range(4000)], [False] * 4000)
    twice = thin(thin(trace, 0.5, seed=1), 0.5, seed=1)
    assert len(twice) == pytest.approx(1000, abs=5 * np.sqrt(4000 * 0.25 * 0.75))


def test_wall_clock_moves_with_the_first_request() -> None:
    trace = make([1] * 30, list(range(30)), [False] * 30)
    assert window(trace, 12, 20).metadata.t0_iso == "2024-05-10T00:00:12"
    assert modulate(trace, [Day(period_s=20)]).metadata.t0_iso is None
