"""Other lengths of prompts or outputs, and other limits on outputs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.runs import lay_runs
from fleetsim.traces.schema import IntArray, Trace
from fleetsim.traces.transforms.record import draws, recorded

Column = Literal["prompt_tokens", "output_tokens"]
_MOST_TOKENS = 2**31 - 1


def length_map(
    trace: Trace,
    column: Column,
    *,
    scale: float = 1.0,
    shortest: int = 1,
    longest: int | None = None,
) -> Trace:
    """Scale a column of lengths, round, and hold it within bounds.

    How many lengths the bounds changed is recorded. A prompt that gets shorter loses the end of
    its block chain; one that gets longer gets an end of its own, which is shared with nobody.
    ``max_tokens`` stays as it is.

    Args:
        trace: stays as it is.
        column: "prompt_tokens" or "output_tokens".
        scale: every length times this.
        shortest: lengths below become this.
        longest: lengths above become this; None for no bound.

    Raises:
        InputError: bounds or a scale out of range, or a length too large for the column.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"length_map: scale {scale} must be a positive number")
    most = _MOST_TOKENS if longest is None else longest
    if not 1 <= shortest <= most <= _MOST_TOKENS:
        raise InputError(
            f"length_map: shortest {shortest} and longest {longest}: must be at least 1 token, and "
            "shortest at most longest"
        )
    scaled = np.rint(getattr(trace, column) * scale)
    raised, cut = int((scaled < shortest).sum()), int((scaled > most).sum())
    if longest is None and cut:
        raise InputError(f"length_map: scale {scale:g} makes lengths above {_MOST_TOKENS}")
    tokens = np.clip(scaled, shortest, most).astype(np.int32)
    changes: dict[str, Any] = {column: tokens}
    if column == "prompt_tokens":
        changes |= _shorter_chains(trace, tokens.astype(np.int64))
    return recorded(
        replace(trace, **changes),
        "length_map",
        column=column,
        scale=scale,
        shortest=shortest,
        longest=longest,
        raised_to_shortest=raised,
        cut_to_longest=cut,
    )


def limit_outputs(
    trace: Trace,
    *,
    seed: int,
    tokens: int | None = None,
    output_factor: float | None = None,
    stop_by_length: float = 0.0,
) -> Trace:
    """Fill in what clients asked for at most, in place of what the trace says.

    A request ends for one of two reasons: the model stops by itself (eos), or it reaches
    ``max_tokens`` (length). A drawn share of the requests asks for exactly its recorded output and
    so stops by length. The others ask for ``tokens``, or for their output times ``output_factor``,
    rounded up. An output longer than ``tokens`` will be cut there: how many is recorded.

    Args:
        trace: stays as it is.
        seed: of the draw.
        tokens: the same limit for all; exactly one of it and ``output_factor``.
        output_factor: how generous the limits are, at least 1.
        stop_by_length: share of requests that reach their limit, from 0 to 1.

    Raises:
        InputError: both rules or none, or a parameter out of range.
    """
    if (tokens is None) == (output_factor is None):
        raise InputError("max_tokens: give exactly one of tokens and output_factor")
    if not 0 <= stop_by_length <= 1:
        raise InputError(f"max_tokens: stop_by_length {stop_by_length}: must lie in [0, 1]")
    if tokens is not None:
        if not 1 <= tokens <= _MOST_TOKENS:
            raise InputError(f"max_tokens: tokens {tokens}: must be at least 1")
        asked = np.full(len(trace), tokens, dtype=np.int32)
    else:
        factor = float(output_factor or 0)
        if not 1 <= factor < math.inf:
            raise InputError(f"max_tokens: output_factor {factor}: must be at least 1")
        wide = np.ceil(trace.output_tokens * factor)
        if wide.max() > _MOST_TOKENS:
            raise InputError(f"max_tokens: output_factor {factor:g} gives more than {_MOST_TOKENS}")
        asked = wide.astype(np.int32)
    exact = draws(trace, "max_tokens", seed).random(len(trace)) < stop_by_length
    asked = np.where(exact, trace.output_tokens, asked).astype(np.int32)
    return recorded(
        replace(trace, max_tokens=asked),
        "max_tokens",
        tokens=tokens,
        output_factor=output_factor,
        stop_by_length=stop_by_length,
        requests_stopped_by_length=int((asked <= trace.output_tokens).sum()),
        outputs_to_cut=int((asked < trace.output_tokens).sum()),
        seed=seed,
    )


def _shorter_chains(trace: Trace, prompt_tokens: IntArray) -> dict[str, Any]:
    """Leave each chain only the blocks that begin inside the prompt."""
    if trace.block_offsets is None or trace.block_ids is None:
        return {}
    lengths = np.diff(trace.block_offsets)
    kept = np.minimum(lengths, -(-prompt_tokens // (trace.metadata.block_tokens or 1)))
    offsets, pick = lay_runs(trace.block_offsets[:-1], kept)
    return {"block_offsets": offsets, "block_ids": trace.block_ids[pick]}
