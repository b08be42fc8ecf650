"""Synthetic traces: an arrival process and two length distributions."""

from __future__ import annotations

import numpy as np

from fleetsim.traces.arrivals import gamma_arrivals
from fleetsim.traces.errors import InputError
from fleetsim.traces.lengths import FixedLength, Lengths
from fleetsim.traces.schema import Trace, TraceMetadata
from fleetsim.traces.streams import stream

_INT32_MAX = 2**31 - 1


def synthesize(
    *,
    requests: int,
    rate_rps: float,
    prompt_tokens: int | Lengths,
    output_tokens: int | Lengths,
    seed: int,
    burstiness: float = 1.0,
    max_tokens: int | None = None,
) -> Trace:
    """Generate a trace of independent requests without shared prefixes.

    Arrivals, prompts and outputs come from streams of their own: changing one leaves the others as
    they were, another rate stretches the same arrival pattern, and more requests extend the same
    trace.

    Args:
        requests: how many.
        rate_rps: mean arrival rate; ``inf`` lets all arrive at once.
        prompt_tokens: a distribution of :mod:`fleetsim.traces.lengths`, or one fixed number.
        output_tokens: likewise.
        seed: from 0 to 2**64 - 1.
        burstiness: shape of the Gamma gaps; 1 is Poisson, less is burstier.
        max_tokens: what every client asks for at most; None leaves it unstated.

    Raises:
        InputError: a parameter out of range.
    """
    if max_tokens is not None and not 1 <= max_tokens <= _INT32_MAX:
        raise InputError(f"max_tokens {max_tokens}: must be at least 1")
    arrival_s = gamma_arrivals(requests, rate_rps, burstiness, stream(seed, "arrivals"))
    prompts, outputs = _as_lengths(prompt_tokens), _as_lengths(output_tokens)
    parameters = {
        "name": "synthesize",
        "requests": requests,
        # JSON has no infinity
        "rate_rps": rate_rps if rate_rps < float("inf") else "inf",
        "burstiness": burstiness,
        "prompt_tokens": repr(prompts),
        "output_tokens": repr(outputs),
        "max_tokens": max_tokens,
        "seed": seed,
    }
    return Trace(
        arrival_s=arrival_s,
        prompt_tokens=_draw(prompts, requests, seed, "prompt_tokens"),
        output_tokens=_draw(outputs, requests, seed, "output_tokens"),
        max_tokens=None if max_tokens is None else np.full(requests, max_tokens, dtype=np.int32),
        source_row=np.arange(requests),
        metadata=TraceMetadata(
            source_name="synthetic",
            rows_read=requests,
            rows_kept=requests,
            transforms=(parameters,),
        ),
    )


def _as_lengths(lengths: int | Lengths) -> Lengths:
    return FixedLength(lengths) if isinstance(lengths, int) else lengths


def _draw(
    lengths: Lengths, count: int, seed: int, purpose: str
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    tokens = lengths.draw(count, stream(seed, purpose))
    if int(tokens.min()) < 1 or int(tokens.max()) > _INT32_MAX:
        raise InputError(f"{purpose}: {lengths} must give lengths between 1 and {_INT32_MAX}")
    return tokens.astype(np.int32)
