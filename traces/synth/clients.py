"""A pool of clients, each with its own rhythm and lengths: ServeGen's idea of a workload.

ServeGen (Xiang et al., 2025) describes a service as the sum of its clients: for each, windows of
time with a rate, a variation of the gaps and distributions of lengths. Here each client is a
renewal process whose state runs on from window to window, and every field has uniform numbers of
its own. So the number of requests in a window is random with the mean that the rate gives, slow
clients are not rounded up to one request a window, and the length of an output says nothing about
that of its prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fleetsim.traces.arrivals import Gaps, unit_gaps, unit_wait
from fleetsim.traces.errors import InputError
from fleetsim.traces.lengths import Lengths
from fleetsim.traces.schema import Categorical, FloatArray, IntArray, Trace, TraceMetadata
from fleetsim.traces.streams import stream

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ClientWindow:
    """What a client does in one window of time.

    Attributes:
        start_s: when it begins.
        end_s: when it ends.
        rate_rps: mean requests per second; 0 for an idle window.
        cv: coefficient of variation of the gaps between requests.
        gaps: law of the gaps.
        prompt_tokens: lengths of prompts; None only in an idle window.
        output_tokens: lengths of outputs, likewise.
    """

    start_s: float
    end_s: float
    rate_rps: float
    cv: float = 1.0
    gaps: Gaps = "gamma"
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start_s < self.end_s < math.inf:
            raise InputError(f"client window {self.start_s:g} to {self.end_s:g} s: must end later")
        if not 0 <= self.rate_rps < math.inf:
            raise InputError(f"client window: rate_rps {self.rate_rps}: must be at least 0")
        if self.rate_rps > 0 and (self.prompt_tokens is None or self.output_tokens is None):
            raise InputError("client window: a rate above 0 needs prompt_tokens and output_tokens")


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its windows, in order and apart; between them it is idle."""

    name: str
    windows: tuple[ClientWindow, ...]

    def __post_init__(self) -> None:
        for before, after in pairwise(self.windows):
            if after.start_s < before.end_s:
                raise InputError(
                    f"client {self.name}: the window from {after.start_s:g} s begins before the "
                    f"one before it ends; windows must not overlap"
                )


def compose_clients(pool: Sequence[Client], *, seed: int, rate_factor: float = 1.0) -> Trace:
    """Generate the trace of all clients together; the tenant of a request is its client.

    Each client is by itself: another client more or less moves no request of the others.

    Args:
        pool: at least one client, each with a name of its own.
        seed: from 0 to 2**64 - 1.
        rate_factor: all rates times this, so that each client keeps its share.

    Raises:
        InputError: no clients, a name twice, a parameter out of range, or no request drawn.
    """
    if not (math.isfinite(rate_factor) and rate_factor > 0):
        raise InputError(f"rate_factor {rate_factor}: must be a positive number")
    names = [client.name for client in pool]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"client {twice!r} is in the pool twice; names must differ")
    parts = [_requests(client, seed, rate_factor) for client in pool]
    sizes = [len(arrival_s) for arrival_s, _, _ in parts]
    if not sum(sizes):
        raise InputError(f"the {len(names)} clients of the pool make no request in their windows")
    arrival_s, prompts, outputs = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(arrival_s, kind="stable")
    arrival_s = arrival_s[order]
    client = np.repeat(np.arange(len(names)), sizes)[order]
    return Trace(
        arrival_s=arrival_s - arrival_s[0],
        prompt_tokens=prompts[order].astype(np.int32),
        output_tokens=outputs[order].astype(np.int32),
        tenant=Categorical.from_values(np.array(names, dtype=object)[client]),
        source_row=np.arange(len(order)),
        metadata=TraceMetadata(
            source_name="synthetic",
            rows_read=len(order),
            rows_kept=len(order),
            transforms=(
                {
                    "name": "compose_clients",
                    "clients": len(names),
                    "rate_factor": rate_factor,
                    "seed": seed,
                },
            ),
        ),
    )


def _requests(
    client: Client, seed: int, rate_factor: float
) -> tuple[FloatArray, IntArray, IntArray]:
    """Draw one client's arrivals, prompts and outputs."""
    arrivals, prompts, outputs = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    wait: float | None = None  # expected arrivals left until the next one comes
    for number, window in enumerate(client.windows):
        if window.rate_rps == 0 or window.prompt_tokens is None or window.output_tokens is None:
            continue

        def draws(field: str, number: int = number) -> np.random.Generator:
            return stream(seed, f"client/{client.name}/{number}/{field}")

        gaps = draws("gaps")
        if wait is None:
            wait = unit_wait(window.gaps, window.cv, gaps)
        rate_rps = window.rate_rps * rate_factor
        expected = rate_rps * (window.end_s - window.start_s)
        due = [np.array([wait])]
        while due[-1][-1] < expected:
            more = unit_gaps(window.gaps, window.cv, 64 + int(expected), gaps)
            due.append(due[-1][-1] + np.cumsum(more))
        all_due = np.concatenate(due)
        now = all_due[all_due < expected]
        wait = float(all_due[len(now)] - expected)
        arrivals.append(window.start_s + now / rate_rps)
        for name, lengths, drawn in (
            ("prompt_tokens", window.prompt_tokens, prompts),
            ("output_tokens", window.output_tokens, outputs),
        ):
            tokens = lengths.draw(len(now), draws(name))
            if len(tokens) and not 1 <= tokens.min() <= tokens.max() <= _INT32_MAX:
                raise InputError(
                    f"client {client.name}: {name}: {lengths} must give lengths from 1 to "
                    f"{_INT32_MAX}"
                )
            drawn.append(tokens)
    return np.concatenate(arrivals), np.concatenate(prompts), np.concatenate(outputs)
