"""Counts and sums over the requests table, taken part by part so that no part need stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleetsim.sim.request import COMPLETED, OUTCOMES
from fleetsim.sim.results.facts import RunFacts
from fleetsim.sim.results.measures import (
    MEASURE_COLUMNS,
    MEASURES,
    PHASES,
    Array,
    Columns,
    Floats,
    measures,
    phases,
)

REQUEST_COLUMNS = (
    "tenant",
    "outcome",
    "reason",
    "pool",
    "arrival_s",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "preemptions",
    *MEASURE_COLUMNS,
)
"""Columns of the requests table that a tally reads."""

_TEXTS = ("tenant", "outcome", "reason", "pool")


class ConservationError(RuntimeError):
    """A request was lost, made up or miscounted: a fault of the simulator, never of its input."""


@dataclass(slots=True)
class Traffic:
    """Requests and tokens of one kind."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class PoolTally:
    """What the journeys say of one pool, over the whole run.

    Attributes:
        dispatched: requests sent to a replica; dispatched_in_window: those of them that
            arrived in the measurement window.
        residence_s: sum of the times they spent in the pool, from dispatch to the last token at
            the engine, or else to their end.
        scheduled_prompt_tokens, cached_tokens: of requests that an engine scheduled.
        preemptions: how often requests were preempted.
    """

    dispatched: int = 0
    dispatched_in_window: int = 0
    residence_s: float = 0.0
    scheduled_prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0


class Tally:
    """Sums over all requests; arrays only of what percentiles need, for those in the window.

    Attributes:
        outcomes: requests by (tenant, outcome); reasons: by (outcome, reason).
        completed: all that completed; ended_in_window: those that ended in the window.
        pools: by pool name.
        phase_sums_s: by phase, over requests that arrived in the window and completed.
    """

    def __init__(self, facts: RunFacts) -> None:
        self._facts = facts
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.completed = Traffic()
        self.ended_in_window = Traffic()
        self.pools = {pool.name: PoolTally() for pool in facts.pools}
        self.phase_sums_s = dict.fromkeys(PHASES, 0.0)
        self._window: dict[str, list[Floats]] = {name: [] for name in MEASURES}
        self._window_completed: list[npt.NDArray[np.bool_]] = []
        self._window_prompts: list[npt.NDArray[np.int64]] = []

    def add(self, part: pa.Table) -> None:
        """Count a part of the requests table that has at least `REQUEST_COLUMNS`.

        Raises:
            ConservationError: when a row contradicts itself.
        """
        facts = self._facts
        columns = {
            name: part.column(name).to_numpy() for name in REQUEST_COLUMNS if name not in _TEXTS
        }
        outcome = _count_pairs(part, "tenant", "outcome", self.outcomes)
        _count_pairs(part, "outcome", "reason", self.reasons)
        completed = outcome == COMPLETED
        _check_rows(columns, completed)
        _add_traffic(self.completed, columns, completed)
        ended_s, arrival_s = columns["ended_s"], columns["arrival_s"]
        _add_traffic(
            self.ended_in_window,
            columns,
            completed & (ended_s >= facts.window_start_s) & (ended_s <= facts.window_end_s),
        )
        in_window = (arrival_s >= facts.window_start_s) & (arrival_s <= facts.window_end_s)
        for name, values in measures(columns).items():
            self._window[name].append(values[in_window])
        self._window_completed.append(completed[in_window])
        self._window_prompts.append(columns["prompt_tokens"][in_window].astype(np.int64))
        for name, values in phases(columns).items():
            self.phase_sums_s[name] += float(values[in_window & completed].sum())
        self._add_pools(part, columns, in_window)

    def window_measures(self) -> dict[str, Floats]:
        """Each of `MEASURES`, one value for each request that arrived in the window."""
        return {name: _joined(parts, np.float64) for name, parts in self._window.items()}

    def window_completed(self) -> npt.NDArray[np.bool_]:
        """Which of the requests that arrived in the window completed."""
        return _joined(self._window_completed, np.bool_)

    def window_prompts(self) -> npt.NDArray[np.int64]:
        """Prompt tokens of the requests that arrived in the window."""
        return _joined(self._window_prompts, np.int64)

    def check_conservation(self) -> None:
        """Hold the journeys against what the client says it issued, tenant by tenant.

        Raises:
            ConservationError: when a request is missing or appears twice.
        """
        ended: Counter[str] = Counter()
        for (tenant, outcome), count in self.outcomes.items():
            if outcome not in OUTCOMES:
                raise ConservationError(f"{count} journeys with the outcome {outcome!r}")
            ended[tenant] += count
        for tenant in sorted(ended.keys() | self._facts.arrived.keys()):
            arrived = self._facts.arrived.get(tenant, 0)
            if arrived != ended[tenant]:
                raise ConservationError(
                    f"tenant {tenant!r}: {arrived} requests arrived, {ended[tenant]} journeys ended"
                )

    def _add_pools(
        self,
        part: pa.Table,
        columns: Columns,
        in_window: npt.NDArray[np.bool_],
    ) -> None:
        pools = part.column("pool").to_numpy(zero_copy_only=False)
        # Who has a last token left with it, even if the client did not wait for it to arrive.
        left_s = columns["last_token_s"]
        left_s = np.where(np.isnan(left_s), columns["ended_s"], left_s)
        left_s = np.where(np.isnan(left_s), self._facts.end_s, left_s)
        residence_s = left_s - columns["dispatched_s"]
        dispatched = ~np.isnan(columns["dispatched_s"])
        strange = dispatched & ~np.isin(pools, list(self.pools))
        if strange.any():
            raise ConservationError(f"journeys in the unknown pool {pools[strange][0]!r}")
        for name, pool in self.pools.items():
            here = (pools == name) & dispatched
            scheduled = here & ~np.isnan(columns["scheduled_s"])
            pool.dispatched += int(np.count_nonzero(here))
            pool.dispatched_in_window += int(np.count_nonzero(here & in_window))
            pool.residence_s += float(residence_s[here].sum())
            pool.scheduled_prompt_tokens += _sum(columns["prompt_tokens"], scheduled)
            pool.cached_tokens += _sum(columns["cached_tokens"], scheduled)
            pool.preemptions += _sum(columns["preemptions"], here)


def _sum(values: Array, rows: npt.NDArray[np.bool_]) -> int:
    return int(values[rows].sum(dtype=np.int64))


def _add_traffic(traffic: Traffic, columns: Columns, rows: npt.NDArray[np.bool_]) -> None:
    traffic.requests += int(np.count_nonzero(rows))
    traffic.prompt_tokens += _sum(columns["prompt_tokens"], rows)
    traffic.output_tokens += _sum(columns["delivered_tokens"], rows)


def _count_pairs(
    part: pa.Table, first: str, second: str, counts: Counter[tuple[str, str]]
) -> npt.NDArray[np.object_]:
    """Count the pairs of two text columns; return the column named outcome, as texts."""
    names, codes = {}, {}
    for column in (first, second):
        coded = part.column(column).combine_chunks().dictionary_encode()
        names[column] = np.array(coded.dictionary.to_pylist(), dtype=object)
        codes[column] = coded.indices.to_numpy().astype(np.int64)
    width = max(1, len(names[second]))
    pairs = np.bincount(codes[first] * width + codes[second])
    for pair in np.flatnonzero(pairs):
        key = (names[first][pair // width], names[second][pair % width])
        counts[key] += int(pairs[pair])
    outcomes: npt.NDArray[np.object_] = names["outcome"][codes["outcome"]]
    return outcomes


def _check_rows(columns: Columns, completed: npt.NDArray[np.bool_]) -> None:
    short = completed & (columns["delivered_tokens"] != columns["output_tokens"])
    if short.any():
        raise ConservationError(
            f"{np.count_nonzero(short)} completed requests did not deliver exactly their tokens"
        )
    if (columns["cached_tokens"] > columns["prompt_tokens"]).any():
        raise ConservationError("more prefix-cache hits than prompt tokens")


def _joined(parts: Sequence[Array], dtype: type) -> Array:
    return np.concatenate(parts) if parts else np.empty(0, dtype)
