"""Labels by lot: tenant, service class, LoRA adapter, model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Categorical, Trace
from fleetsim.traces.transforms.record import draws, recorded
from fleetsim.traces.transforms.sessions import find_sessions
from fleetsim.traces.transforms.thin import By

Label = Literal["tenant", "slo_class", "adapter", "model"]


def assign(
    trace: Trace, column: Label, weights: Mapping[str, float], *, seed: int, by: By = "session"
) -> Trace:
    """Give every session a label, drawn by weights, in place of what the trace says.

    Args:
        trace: stays as it is.
        column: "tenant", "slo_class", "adapter" or "model".
        weights: label to weight, of any sum. The label "" stands for none, as for requests to the
            model without an adapter.
        seed: of the draw; each column has draws of its own.
        by: what gets one label. Where no session is known, a session is one request.

    Raises:
        InputError: no weights, or one that is negative or not finite, or all 0.
    """
    names, shares = list(weights), np.array(list(weights.values()), dtype=np.float64)
    if not names or not bool((np.isfinite(shares) & (shares >= 0)).all()) or not shares.any():
        raise InputError(
            f"assign {column}: weights must be at least 0, and one of them above, not {weights}"
        )
    sessions = find_sessions(trace)
    of = sessions.of if by == "session" else np.arange(len(trace))
    uniform = draws(trace, "assign", seed, column).random(int(of.max()) + 1)
    bounds = np.cumsum(shares) / shares.sum()
    drawn = np.minimum(np.searchsorted(bounds, uniform, side="right"), len(names) - 1)[of]
    labels = np.array([name or None for name in names], dtype=object)
    changes: dict[str, Any] = {column: Categorical.from_values(labels[drawn])}
    return recorded(
        replace(trace, **changes),
        "assign",
        column=column,
        weights={name: float(weight) for name, weight in weights.items()},
        by=by,
        sessions_told_by=sessions.told_by if by == "session" else None,
        seed=seed,
    )


def zipf_weights(prefix: str, count: int, exponent: float = 1.0) -> dict[str, float]:
    """Weights by Zipf's law: the k-th of ``count`` labels has a weight of k**-exponent.

    Args:
        prefix: labels are ``prefix-1``, ``prefix-2``, ...
        count: how many, at least 1.
        exponent: at least 0; 0 makes all alike.

    Raises:
        InputError: a parameter out of range.
    """
    if count < 1:
        raise InputError(f"zipf: count {count} must be at least 1")
    if not 0 <= exponent < math.inf:
        raise InputError(f"zipf: exponent {exponent} must be at least 0")
    return {f"{prefix}-{rank}": float(rank) ** -exponent for rank in range(1, count + 1)}
