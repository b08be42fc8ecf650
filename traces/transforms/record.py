"""What every transform does alike: note itself in the trace, and draw from a stream of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fleetsim.traces.schema import Trace
from fleetsim.traces.streams import stream


def recorded(trace: Trace, name: str, **parameters: Any) -> Trace:
    """Append a transform, its parameters and its findings to the trace's metadata.

    Args:
        trace: what the transform made.
        name: of the transform.
        parameters: what JSON can hold; those that are None are left out.
    """
    record = {"name": name, **{k: v for k, v in parameters.items() if v is not None}}
    metadata = replace(trace.metadata, transforms=(*trace.metadata.transforms, record))
    return replace(trace, metadata=metadata)


def draws(trace: Trace, name: str, seed: int, part: str = "") -> np.random.Generator:
    """Open the stream of one use of one transform.

    It depends on the seed, the transform's name, and how often the trace went through it before:
    other transforms before or after it move nothing, and a second use draws anew.

    Raises:
        InputError: a seed out of range.
    """
    uses = sum(step.get("name") == name for step in trace.metadata.transforms)
    return stream(seed, f"transform/{name}/{uses}" + (f"/{part}" if part else ""))
