"""Which requests belong together, so that a transform moves, drops or copies them as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetsim.traces.numbering import by_first_appearance
from fleetsim.traces.schema import IntArray, Trace

SYSTEM_PROMPT_REQUESTS = 100
"""Where a trace names no sessions: a block that more requests than this have is no
conversation's own, but a system prompt's."""


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """The sessions of a trace, numbered by first appearance.

    Attributes:
        of: int64 per request: the number of its session.
        first_row: int64 per session: its first request.
        told_by: what they were told by: "session", "parent", "prefix chains", or "none" where
            every request stands alone.
    """

    of: IntArray
    first_row: IntArray
    told_by: str

    def __len__(self) -> int:
        return len(self.first_row)


def find_sessions(trace: Trace) -> Sessions:
    """Tell which requests belong together.

    Requests with the same session label do, and so does a request and the one that it waits for.
    In a trace that has neither, prefix chains tell: requests are of one session if they share a
    block that at most :data:`SYSTEM_PROMPT_REQUESTS` requests have. A request that nothing ties to
    another one is a session by itself.
    """
    n = len(trace)
    alone = np.arange(n)
    if trace.session is None and trace.parent is None:
        told_by = "none" if trace.block_ids is None else "prefix chains"
        labels = alone if trace.block_ids is None else _by_chains(trace)
        return Sessions(*by_first_appearance(labels), told_by)
    labels = alone
    if trace.session is not None:
        labels = np.where(trace.session.codes < 0, n + alone, trace.session.codes.astype(np.int64))
    if trace.parent is not None:
        labels = _joined(by_first_appearance(labels)[0], trace.parent)
    told_by = "parent" if trace.session is None else "session"
    return Sessions(*by_first_appearance(labels), told_by)


def session_blocks(trace: Trace, sessions: Sessions) -> IntArray | None:
    """Tell, per position in ``trace.block_ids``, the one session that has the block.

    Returns:
        The session's number, -1 for a block of several sessions (a system prompt); None for a
        trace without block ids.
    """
    if trace.block_offsets is None or trace.block_ids is None:
        return None
    owner = np.repeat(sessions.of, np.diff(trace.block_offsets))
    _, first, block = np.unique(trace.block_ids, return_index=True, return_inverse=True)
    block = block.reshape(-1)
    several = np.zeros(len(first), dtype=bool)
    several[block[owner != owner[first][block]]] = True
    return np.where(several[block], -1, owner)


def _joined(labels: IntArray, parent: IntArray) -> IntArray:
    """Join the sessions of a request and its parent, where they differ."""
    root = np.arange(int(labels.max()) + 1)

    def find(label: int) -> int:
        while root[label] != label:
            root[label] = root[root[label]]
            label = int(root[label])
        return label

    rows = np.flatnonzero(parent >= 0)
    for row in rows[labels[rows] != labels[parent[rows]]].tolist():
        one, other = find(int(labels[row])), find(int(labels[parent[row]]))
        root[max(one, other)] = min(one, other)
    while not np.array_equal(root, root[root]):
        root = root[root]
    return root[labels]


def _by_chains(trace: Trace) -> IntArray:
    """Label each request by the first block of its chain that is not a system prompt's."""
    assert trace.block_offsets is not None
    assert trace.block_ids is not None
    offsets = trace.block_offsets
    _, block, requests = np.unique(trace.block_ids, return_inverse=True, return_counts=True)
    own = requests[block.reshape(-1)] <= SYSTEM_PROMPT_REQUESTS
    # a block's requests have all blocks before it, so along a chain the counts fall
    shared = np.concatenate([[0], np.cumsum(~own)])
    place = offsets[:-1] + (shared[offsets[1:]] - shared[offsets[:-1]])
    has_own = place < offsets[1:]
    labels = len(requests) + np.arange(len(trace))
    labels[has_own] = block.reshape(-1)[place[has_own]]
    return labels
