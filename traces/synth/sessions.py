"""Synthetic conversations: shared beginnings, turns that build on each other, pauses to think."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetsim.traces.arrivals import gamma_arrivals
from fleetsim.traces.errors import InputError
from fleetsim.traces.lengths import Lengths
from fleetsim.traces.numbering import by_first_appearance
from fleetsim.traces.runs import lay_runs
from fleetsim.traces.schema import Categorical, FloatArray, IntArray, Trace, TraceMetadata
from fleetsim.traces.streams import stream

_LONGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PrefixLevel:
    """One level of the tree of shared beginnings: system prompts, then tools, then documents.

    Attributes:
        choices: children of every node of the level above.
        tokens: length of each child's text.
        zipf: exponent of Zipf's law by which a session takes one; 0 makes all alike.
    """

    choices: int
    tokens: int
    zipf: float = 1.0

    def __post_init__(self) -> None:
        _require(self.choices >= 1, f"choices {self.choices}: must be at least 1")
        _require(self.tokens >= 1, f"prefix tokens {self.tokens}: must be at least 1")
        _require(0 <= self.zipf < math.inf, f"zipf {self.zipf}: must be at least 0")


@dataclass(frozen=True, slots=True)
class SessionShape:
    """How sessions look.

    A prompt holds the session's path through the prefix tree, and every earlier turn and reply.

    Attributes:
        mean_turns: requests per session, geometrically distributed.
        first_tokens: what the user adds in the first turn.
        user_tokens: what the user adds in a later one.
        output_tokens: length of a reply.
        think_p50_s: median of the pause from a reply's end to the next turn, lognormal.
        think_mean_s: its mean, at least the median.
        prefix: levels of the tree of shared beginnings, from the root; none shares nothing.
        reply_s_per_token: in an open loop, how long a reply takes to come.
        closed_loop: whether a turn waits for the reply of the one before it, as simulated.
        longest_tokens: a session ends before a turn whose prompt and output exceed this.
        block_tokens: prompt tokens that a block id covers.
    """

    mean_turns: float
    first_tokens: Lengths
    user_tokens: Lengths
    output_tokens: Lengths
    think_p50_s: float
    think_mean_s: float
    prefix: tuple[PrefixLevel, ...] = ()
    reply_s_per_token: float = 0.02
    closed_loop: bool = False
    longest_tokens: int = _LONGEST
    block_tokens: int = 16

    def __post_init__(self) -> None:
        _require(
            1 <= self.mean_turns < math.inf, f"mean_turns {self.mean_turns}: must be at least 1"
        )
        _require(self.think_p50_s > 0, f"think_p50_s {self.think_p50_s}: must be above 0")
        _require(
            self.think_p50_s <= self.think_mean_s < math.inf,
            f"think_mean_s {self.think_mean_s}: must be at least think_p50_s {self.think_p50_s}",
        )
        _require(
            0 <= self.reply_s_per_token < math.inf,
            f"reply_s_per_token {self.reply_s_per_token}: must be at least 0",
        )
        _require(
            1 <= self.longest_tokens <= _LONGEST,
            f"longest_tokens {self.longest_tokens}: must be at least 1",
        )
        _require(self.block_tokens >= 1, f"block_tokens {self.block_tokens}: must be at least 1")


def synthesize_sessions(
    shape: SessionShape, *, sessions: int, sessions_per_s: float, seed: int, burstiness: float = 1.0
) -> Trace:
    """Generate multi-turn sessions that begin as a renewal process.

    Every quantity has a stream of its own, so that changing one law leaves the draws of the others,
    and more sessions extend the same trace. A turn that is too long, and all after it, is dropped
    under ``over_longest_tokens``.

    In an open loop, turns come at fixed times: replies take ``reply_s_per_token``. In a closed one,
    a turn has a parent and ``think_s``; its arrival is then nominal.

    Args:
        shape: of the sessions.
        sessions: how many.
        sessions_per_s: mean rate at which they begin.
        seed: from 0 to 2**64 - 1.
        burstiness: shape of the Gamma gaps between beginnings; 1 is Poisson.

    Raises:
        InputError: a parameter out of range, or no turn short enough.
    """
    if not math.isfinite(sessions_per_s):
        raise InputError(f"sessions_per_s {sessions_per_s}: must be a positive number")
    begin_s = gamma_arrivals(sessions, sessions_per_s, burstiness, stream(seed, "session/begin"))
    turns = stream(seed, "session/turns").geometric(1 / shape.mean_turns, sessions)
    of = np.repeat(np.arange(sessions), turns)
    first = np.cumsum(turns) - turns
    turn = np.arange(len(of)) - first[of]

    added = shape.user_tokens.draw(len(of), stream(seed, "session/user_tokens"))
    added[first] = shape.first_tokens.draw(sessions, stream(seed, "session/first_tokens"))
    output = shape.output_tokens.draw(len(of), stream(seed, "session/output_tokens"))
    said = np.cumsum(added + output) - output  # up to this turn, over all sessions
    prompt = said - (said - added)[first][of] + sum(level.tokens for level in shape.prefix)

    sigma = math.sqrt(2 * math.log(shape.think_mean_s / shape.think_p50_s))
    normal = stream(seed, "session/think").standard_normal(len(of))
    think_s = shape.think_p50_s * np.exp(sigma * normal)
    think_s[first] = 0.0
    pause_s = think_s.copy()
    pause_s[1:] += np.where(turn[1:] > 0, output[:-1] * shape.reply_s_per_token, 0.0)
    since_s = np.cumsum(pause_s)
    arrival_s = begin_s[of] + (since_s - since_s[first][of])

    fits = prompt + output <= shape.longest_tokens
    kept = np.flatnonzero(fits)
    if len(kept) == 0:
        raise InputError(f"longest_tokens {shape.longest_tokens}: no turn is that short; give more")
    nodes = _paths(shape.prefix, sessions, seed)
    offsets, ids = _chains(shape, nodes[:, of[kept]], of[kept], prompt[kept])
    dropped = len(of) - len(kept)
    order = np.argsort(arrival_s[kept], kind="stable")
    rows = kept[order]
    laid, pick = lay_runs(offsets[:-1][order], np.diff(offsets)[order])
    parent, thinks = _closed(turn[rows], rows, think_s) if shape.closed_loop else (None, None)
    return Trace(
        arrival_s=arrival_s[rows] - arrival_s[rows[0]],
        prompt_tokens=prompt[rows].astype(np.int32),
        output_tokens=output[rows].astype(np.int32),
        block_offsets=laid,
        block_ids=by_first_appearance(ids[pick])[0].astype(np.uint64),
        session=Categorical.from_values([f"s{number}" for number in of[rows].tolist()]),
        turn=turn[rows].astype(np.int32),
        parent=parent,
        think_s=thinks,
        source_row=rows,
        metadata=TraceMetadata(
            source_name="synthetic",
            rows_read=len(of),
            rows_kept=len(rows),
            rows_dropped={"over_longest_tokens": dropped} if dropped else {},
            block_tokens=shape.block_tokens,
            prefix_scope="global",
            transforms=(
                {
                    "name": "synthesize_sessions",
                    "shape": repr(shape),
                    "sessions": sessions,
                    "sessions_per_s": sessions_per_s,
                    "burstiness": burstiness,
                    "seed": seed,
                },
            ),
        ),
    )


def _paths(levels: tuple[PrefixLevel, ...], sessions: int, seed: int) -> IntArray:
    """Draw each session's node on every level, numbered so that its parent is part of it."""
    nodes = np.zeros((len(levels), sessions), np.int64)
    above = np.zeros(sessions, np.int64)
    for depth, level in enumerate(levels):
        bounds = np.cumsum(np.arange(1, level.choices + 1, dtype=np.float64) ** -level.zipf)
        uniform = stream(seed, f"session/prefix/{depth}").random(sessions) * bounds[-1]
        child = np.minimum(np.searchsorted(bounds, uniform, side="right"), level.choices - 1)
        above = by_first_appearance(above * level.choices + child)[0]
        nodes[depth] = above
    return nodes


def _chains(
    shape: SessionShape, nodes: IntArray, session: IntArray, prompt: IntArray
) -> tuple[IntArray, IntArray]:
    """Name the full blocks of each prompt by whose text fills them: offsets, and a name each."""
    lengths = prompt // shape.block_tokens
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    row = np.repeat(np.arange(len(prompt)), lengths)
    block = np.arange(offsets[-1]) - offsets[:-1][row]
    longest = int(lengths.max()) + 1
    ends = np.cumsum([level.tokens for level in shape.prefix], dtype=np.int64)
    owner = np.full(len(row), len(shape.prefix), np.int64)  # the session's own text
    for depth in reversed(range(len(shape.prefix))):
        owner[(block + 1) * shape.block_tokens <= ends[depth]] = depth
    owners: npt.NDArray[np.int64] = np.vstack([nodes, session[None, :]])
    number = owners[owner, row]
    return offsets, (number * (len(shape.prefix) + 1) + owner) * longest + block


def _closed(turn: IntArray, rows: IntArray, think_s: FloatArray) -> tuple[IntArray, FloatArray]:
    """Link each turn but the first to the one before it."""
    place = np.empty(int(rows.max()) + 1, np.int64)
    place[rows] = np.arange(len(rows))
    later = turn > 0
    parent = np.where(later, place[np.where(later, rows - 1, 0)], -1)
    return parent, np.where(later, think_s[rows], np.nan)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)
