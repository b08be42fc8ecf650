"""Token counts of synthetic traces."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray, IntArray


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


@dataclass(frozen=True, slots=True)
class ParetoLength:
    """Pareto between two bounds: P(length > x) falls as x**-alpha, up to ``longest``.

    The law of heavy tails; with :class:`MixtureLength` the tail of any body.

    Attributes:
        shortest: where it begins.
        longest: where it ends; nothing piles up there, since the law is conditioned on it.
        alpha: index of the tail; the smaller, the heavier.
    """

    shortest: int
    longest: int
    alpha: float

    def __post_init__(self) -> None:
        _require(self.shortest >= 1, f"shortest {self.shortest}: must be at least 1 token")
        _require(
            self.longest >= self.shortest,
            f"longest {self.longest}: must be at least shortest {self.shortest}",
        )
        _require(0 < self.alpha < math.inf, f"alpha {self.alpha}: must be a positive number")

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Draw and round down."""
        above = (self.shortest / (self.longest + 1)) ** self.alpha  # of the unbounded law
        survival = 1 - random.random(count) * (1 - above)
        tokens = np.floor(self.shortest * survival ** (-1 / self.alpha))
        tokens = np.minimum(tokens, self.longest)  # floating point may touch the bound
        return np.asarray(tokens, np.int64)


@dataclass(frozen=True, slots=True)
class EmpiricalLength:
    """Lengths as they were counted.

    Attributes:
        tokens: the lengths, each at least 1.
        weights: how often each occurs, of any sum.
    """

    tokens: tuple[int, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        _require(
            0 < len(self.tokens) == len(self.weights),
            f"{len(self.tokens)} lengths and {len(self.weights)} weights: must be as many, not 0",
        )
        _require(min(self.tokens) >= 1, f"length {min(self.tokens)}: must be at least 1 token")
        _check_weights(self.weights)

    @classmethod
    def of(cls, lengths: IntArray) -> EmpiricalLength:
        """Count the lengths of a column.

        Raises:
            InputError: none, or one below 1.
        """
        tokens, counts = np.unique(lengths, return_counts=True)
        return cls(tuple(tokens.tolist()), tuple(counts.astype(np.float64).tolist()))

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Draw with replacement."""
        return np.array(self.tokens, np.int64)[_pick(self.weights, random.random(count))]


@dataclass(frozen=True, slots=True)
class MixtureLength:
    """One of several laws, drawn anew for each length.

    Attributes:
        parts: the laws.
        weights: how often each is taken, of any sum.
    """

    parts: tuple[Lengths, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        _require(
            0 < len(self.parts) == len(self.weights),
            f"{len(self.parts)} laws and {len(self.weights)} weights: must be as many, not 0",
        )
        _check_weights(self.weights)

    def draw(self, count: int, random: np.random.Generator) -> IntArray:
        """Draw which law, then from each."""
        which = _pick(self.weights, random.random(count))
        tokens = np.zeros(count, np.int64)
        for number, part in enumerate(self.parts):
            rows = which == number
            tokens[rows] = part.draw(int(rows.sum()), random)
        return tokens


def _pick(weights: tuple[float, ...], uniform: FloatArray) -> IntArray:
    bounds = np.cumsum(weights)
    place = np.searchsorted(bounds, uniform * bounds[-1], side="right")
    return np.asarray(np.minimum(place, len(weights) - 1), np.int64)


def _check_weights(weights: tuple[float, ...]) -> None:
    _require(
        all(0 <= weight < math.inf for weight in weights) and any(weights),
        "weights must be at least 0, and one of them above",
    )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)
