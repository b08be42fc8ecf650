"""Prices whole steps from a layer profile: every measured attention shape, with its layers.

A step runs the embedding, ``num_layers`` decoder layers, the final norm, and the head and
sampler for each sequence. Each row of ``attention.csv`` becomes one step, so that attention is
never interpolated; the dense layers are, along tokens alone.
"""

import numpy as np

from fleetsim.calibration.layer_tables import ONCE, OPTIONAL_PER_LAYER, PER_LAYER, LayerTables
from fleetsim.calibration.step_table import Floats, StepTable

LARGEST_GRAPH_TOKENS = 512
"""vLLM's default ``max_cudagraph_capture_size``: larger steps are not padded."""


def layer_steps(tables: LayerTables, num_layers: int, max_kv_tokens: int) -> StepTable:
    """One step for each measured attention shape that could occur.

    Left out: steps of more tokens than the dense layers were measured at, of more sequences than
    the head was, and those whose contexts exceed ``max_kv_tokens`` (a profiler of one layer has
    room for contexts that the whole model has not).
    """
    chunk, context, n_decodes, per_decode, time_us = (
        tables.attention[name]
        for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    )
    n_prefills = np.sign(chunk)
    tokens, sequences = n_decodes + chunk, n_decodes + n_prefills
    kv_tokens = n_decodes * per_decode
    steps_us = (
        num_layers * time_us
        + dense_us(tables, num_layers, tokens)
        + sum(curve.at(sequences) for curve in tables.per_sequence.values())
    )
    steps = StepTable(
        n_decodes=n_decodes,
        kv_tokens=kv_tokens,
        n_prefills=n_prefills,
        prefill_tokens=chunk,
        prefill_square=chunk * chunk / 2,
        prefill_context=chunk * context,
        longest_context=np.maximum(per_decode + 1, context + chunk),
        seconds=steps_us * 1e-6,
    )
    possible = (
        (tokens <= tables.max_tokens)
        & (sequences <= tables.max_sequences)
        & (kv_tokens + context + chunk <= max_kv_tokens)
    )
    return steps.take(possible)


def dense_us(tables: LayerTables, num_layers: int, tokens: Floats) -> Floats:
    """Microseconds of everything that depends on a step's tokens alone, over all layers."""
    padded = padded_tokens(tokens)
    total = sum(tables.dense[name].at(padded) for name in ONCE)
    for name, count in {**PER_LAYER, **OPTIONAL_PER_LAYER}.items():
        if name in tables.dense:
            total = total + num_layers * count * tables.dense[name].at(padded)
    result: Floats = np.asarray(total, dtype=np.float64)
    return result


def padded_tokens(tokens: Floats) -> Floats:
    """Tokens that a step computes once CUDA graphs have padded it to a captured size.

    vLLM captures 1, 2, 4 and multiples of 8 up to 256, of 16 up to 512.
    """
    unit = np.select(
        [tokens <= 2, tokens <= 4, tokens <= 256, tokens <= LARGEST_GRAPH_TOKENS],
        [1, 2, 8, 16],
        default=1,
    )
    padded: Floats = np.ceil(tokens / unit) * unit
    return padded
