"""Token counts of synthetic traces."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import IntArray


class Lengths(Protocol):
    """A distribution of token counts."""

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Draw token counts, each at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class FixedLength:
    """The same number of tokens every time."""

    tokens: int

    def __post_init__(self) -> None:
        _require(self.tokens >= 1, f"length {self.tokens}: must be at least 1 token")

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Repeat the number; draws nothing."""
        return np.full(count, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class UniformLength:
    """Uniform over the whole numbers from ``shortest`` to ``longest``, both included."""

    shortest: int
    longest: int

    def __post_init__(self) -> None:
        _require(self.shortest >= 1, f"shortest {self.shortest}: must be at least 1 token")
        _require(
            self.longest >= self.shortest,
            f"longest {self.longest}: must be at least shortest {self.shortest}",
        )

    @classmethod
    def around(cls, tokens: int, range_ratio: float) -> UniformLength:
        """Make the range ``tokens x (1 - range_ratio)`` to ``tokens x (1 + range_ratio)``.

        Rounded outward, at least 1: ``--random-range-ratio`` of ``vllm bench serve``.

        Raises:
            InputError: a length below 1, a ratio outside [0, 1).
        """
        _require(tokens >= 1, f"length {tokens}: must be at least 1 token")
        _require(0 <= range_ratio < 1, f"range_ratio {range_ratio}: must lie in [0, 1)")
        shortest = max(math.floor(tokens * (1 - range_ratio)), 1)
        return cls(shortest, math.ceil(tokens * (1 + range_ratio)))

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Draw whole numbers of the range."""
        return random.integers(self.shortest, self.longest, size=count, endpoint=True)


@dataclass(frozen=True, slots=True)
class LognormalLength:
    """Lognormal with a given median and mean, rounded, and held within [1, longest].

    Attributes:
        p50: median.
        mean: before ``longest`` cuts it; at least the median.
        longest: largest value, as an output limit or context length would impose.
    """

    p50: float
    mean: float
    longest: int

    def __post_init__(self) -> None:
        _require(self.p50 >= 1, f"p50 {self.p50}: must be at least 1 token")
        _require(
            self.p50 <= self.mean < math.inf, f"mean {self.mean}: must be at least p50 {self.p50}"
        )
        _require(self.longest >= 1, f"longest {self.longest}: must be at least 1 token")

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Draw, round and cut."""
        sigma = math.sqrt(2 * math.log(self.mean / self.p50))
        tokens = np.rint(self.p50 * np.exp(sigma * random.standard_normal(count)))
        return np.clip(tokens, 1, self.longest).astype(np.int64)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)
