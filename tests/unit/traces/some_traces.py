"""Random traces with whatever columns a trace can have."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from fleetsim.traces import Categorical, Trace, TraceMetadata

LABELS = st.sampled_from([None, "a", "b c", 'with "quotes", and comma', "é"])


@st.composite
def chained_traces(draw: st.DrawFn) -> Trace:
    """Traces with block ids: random trees, prompts that end anywhere, rest known or not."""
    block_tokens = draw(st.sampled_from([1, 2, 3, 4, 6]))
    nodes = draw(st.integers(1, 12))
    parents = [draw(st.integers(-1, node - 1)) for node in range(nodes)]
    chains, prompts = [], []
    for _ in range(draw(st.integers(1, 10))):
        node = draw(st.integers(-1, nodes - 1))
        chain: list[int] = []
        while node >= 0:
            chain.insert(0, node + 2**40)
            node = parents[node]
        chains.append(chain)
        covered = len(chain) * block_tokens
        low = max(covered - block_tokens + 1, 1)
        prompts.append(draw(st.integers(low, max(covered + block_tokens - 1, low))))
    count = len(chains)
    return Trace(
        **_base(draw, count, prompts, block_tokens),
        block_offsets=np.cumsum([0, *map(len, chains)]),
        block_ids=np.array([i for chain in chains for i in chain], dtype=np.uint64),
    )


@st.composite
def full_traces(draw: st.DrawFn) -> Trace:
    """Traces with or without each optional column, sessions with parents and think times too."""
    if draw(st.booleans()):
        chained = draw(chained_traces())
        columns = {
            name: getattr(chained, name)
            for name in (
                "arrival_s",
                "prompt_tokens",
                "output_tokens",
                "source_row",
                "metadata",
                "block_offsets",
                "block_ids",
            )
        }
    else:
        count = draw(st.integers(1, 10))
        columns = _base(draw, count, [draw(st.integers(1, 2000)) for _ in range(count)], None)
    count = len(columns["arrival_s"])

    def each(values: st.SearchStrategy[Any]) -> list[Any]:
        return [draw(values) for _ in range(count)]

    for name in ("tenant", "model", "slo_class", "adapter", "kind"):
        if draw(st.booleans()):
            columns[name] = Categorical.from_values(each(LABELS))
    if draw(st.booleans()):
        columns["max_tokens"] = np.array(each(st.integers(0, 4000)), np.int32)
    if draw(st.booleans()):
        columns["priority"] = np.array(each(st.integers(-2, 3)), np.int16)
    if draw(st.booleans()):
        columns |= _sessions(draw, count)
    return Trace(**columns)


def _sessions(draw: st.DrawFn, count: int) -> dict[str, Any]:
    names: list[str | None] = []
    turns, parents, think_s = [], [], []
    last: dict[str, int] = {}
    for row in range(count):
        name = draw(st.sampled_from([None, "s", "t"]))
        before = None if name is None else last.get(name)
        waits = before is not None and draw(st.booleans())
        names.append(name)
        turns.append(-1 if name is None else 0 if before is None else turns[before] + 1)
        parents.append(before if waits and before is not None else -1)
        pause = st.sampled_from([0.0, 0.25, 1e-9, 1 / 3])
        think_s.append(draw(pause) if waits else float("nan"))
        if name is not None:
            last[name] = row
    return {
        "session": Categorical.from_values(names),
        "turn": np.array(turns, np.int32),
        "parent": np.array(parents, np.int64),
        "think_s": np.array(think_s),
    }


def _base(
    draw: st.DrawFn, count: int, prompts: list[int], block_tokens: int | None
) -> dict[str, Any]:
    gaps = [draw(st.sampled_from([0.0, 0.001, 0.5, 1 / 3, 1e-7])) for _ in range(count)]
    arrivals = np.cumsum(gaps)
    return {
        "arrival_s": arrivals - arrivals[0],
        "prompt_tokens": np.array(prompts, np.int32),
        "output_tokens": np.array([draw(st.integers(1, 5000)) for _ in range(count)], np.int32),
        "source_row": np.arange(count),
        "metadata": TraceMetadata(
            "test",
            count,
            count,
            block_tokens=block_tokens,
            prefix_scope="none" if block_tokens is None else "global",
        ),
    }
