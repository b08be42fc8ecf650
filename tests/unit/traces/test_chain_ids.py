"""Chain ids are equal exactly where prefixes are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.traces.sources.chain_ids import chain_ids


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 2), max_size=6)), min_size=1))
def test_equal_prefixes_have_equal_ids_and_others_not(rows: list[tuple[int, list[int]]]) -> None:
    lengths = np.array([len(ids) for _, ids in rows], dtype=np.int64)
    flat = np.array([block for _, ids in rows for block in ids], dtype=np.uint64)
    roots = np.array([root for root, _ in rows], dtype=np.int64)
    expected = [(root, *ids[: end + 1]) for root, ids in rows for end in range(len(ids))]
    found = chain_ids(lengths, flat, roots).tolist()
    assert len(set(zip(expected, found, strict=True))) == len(set(expected)) == len(set(found))


def test_ids_are_the_same_on_every_machine() -> None:
    ids = chain_ids(np.array([2, 1]), np.array([1, 2, 1], dtype=np.uint64))
    assert ids[0] == ids[2]
    # computed with Python's own integers
    assert ids.tolist()[:2] == [12793040940332582595, 5625164612968315054]
