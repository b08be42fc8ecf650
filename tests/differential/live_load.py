"""What a live engine is asked: seeded requests over all that its schedule depends on.

Mixed lengths, shared prefixes on and off the block grid, twins, early stops, requests given up in
mid-run, and second turns, whose prompts hold the answer that the engine gave to the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

VOCABULARY = 2048
STOP_TOKENS = list(range(100, 140))
"""Random weights say one of these about every fiftieth time."""

_BURST_EVERY = 60
_BURST = 20
"""Of so many requests, the first so many come at once: more than a small KV pool holds."""


@dataclass(slots=True)
class LiveRequest:
    """One request as its client means it."""

    due_s: float  # since the run began; a second turn: since the first one ended
    tokens: list[int]
    max_tokens: int
    may_stop: bool  # at one of STOP_TOKENS
    priority: int
    chain: list[tuple[int, int]]  # as in RequestSpec
    give_up_after: int | None  # output tokens after which the client is gone
    follow_up: LiveRequest | None = None  # its tokens come behind this prompt and its answer
    output_segment: int | None = None


class Load:
    """A stream of requests, open loop: they come when they are due, whatever the engine does."""

    def __init__(self, seed: int, requests: int, rate: float, max_model_len: int) -> None:
        self._rng = Random(seed)
        self._max_model_len = max_model_len
        self._segments = 0
        self._prefixes = self._shared_prefixes()
        self.requests: list[LiveRequest] = []
        now_s = 0.0
        while len(self.requests) < requests:
            if len(self.requests) % _BURST_EVERY >= _BURST:
                now_s += self._rng.expovariate(rate)
            request = self._request(now_s)
            self.requests.append(request)
            if self._rng.random() < 0.1:
                self.requests.append(self._twin(request))

    def _words(self, count: int) -> list[int]:
        return [self._rng.randrange(200, VOCABULARY) for _ in range(count)]

    def segment(self) -> int:
        """A new segment's number."""
        self._segments += 1
        return self._segments

    def _shared_prefixes(self) -> list[tuple[list[tuple[int, int]], list[int]]]:
        """Chains and their tokens: roots, and branches that begin with one of them."""
        prefixes: list[tuple[list[tuple[int, int]], list[int]]] = []
        for length in (64, 160, 199):
            prefixes.append(([(self.segment(), length)], self._words(length)))
        for parent, length in ((0, 32), (0, 45), (1, 96)):
            chain, tokens = prefixes[parent]
            prefixes.append(
                ([*chain, (self.segment(), length)], [*tokens, *self._words(length)]),
            )
        return prefixes

    def _request(self, due_s: float) -> LiveRequest:
        rng = self._rng
        chain, prefix = rng.choice(self._prefixes) if rng.random() < 0.6 else ([], [])
        rest = max(1, min(300, int(rng.lognormvariate(3.8, 0.9))))
        max_tokens = max(2, min(160, int(rng.lognormvariate(4.0, 0.7))))
        # the rest is named too, so that a twin or a second turn can hold it
        request = LiveRequest(
            due_s=due_s,
            tokens=[*prefix, *self._words(rest)],
            max_tokens=max_tokens,
            may_stop=rng.random() < 0.4,
            priority=rng.randrange(3),
            chain=[*chain, (self.segment(), rest)],
            give_up_after=rng.randint(1, max_tokens) if rng.random() < 0.05 else None,
        )
        if request.give_up_after is None and rng.random() < 0.35:
            request.follow_up = self._second_turn(request)
        return request

    def _twin(self, other: LiveRequest) -> LiveRequest:
        return LiveRequest(
            due_s=other.due_s,
            tokens=list(other.tokens),
            max_tokens=self._rng.randint(2, 60),
            may_stop=False,
            priority=other.priority,
            chain=list(other.chain),
            give_up_after=None,
        )

    def _second_turn(self, first: LiveRequest) -> LiveRequest | None:
        rest, max_tokens = self._rng.randint(5, 60), self._rng.randint(5, 60)
        if len(first.tokens) + first.max_tokens + rest + max_tokens > self._max_model_len:
            return None
        first.output_segment = self.segment()
        return LiveRequest(
            due_s=self._rng.choice([0.0, 0.1, 1.0]),
            tokens=self._words(rest),
            max_tokens=max_tokens,
            may_stop=False,
            priority=first.priority,
            chain=[(self.segment(), rest)],
            give_up_after=None,
        )
