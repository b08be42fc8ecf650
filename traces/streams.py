"""Random numbers by name: one independent stream per (seed, purpose)."""

from __future__ import annotations

import hashlib

import numpy as np

from fleetsim.traces.errors import InputError


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Open the stream of one purpose.

    Streams are Philox generators keyed by the seed and a hash of the purpose, so that drawing more
    for one purpose moves no other.

    Args:
        seed: from 0 to 2**64 - 1.
        purpose: what the numbers are for, such as "arrivals".

    Raises:
        InputError: a seed out of range.
    """
    if not 0 <= seed < 2**64:
        raise InputError(f"seed {seed}: must be a whole number from 0 to 2**64 - 1")
    key = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    return np.random.Generator(np.random.Philox(key=np.array([seed, key], dtype=np.uint64)))
