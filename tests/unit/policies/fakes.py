"""Views with the numbers a test wants, and a small queue to run policies against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from fleetsim.policies import Decision, RoutingPolicy, ScrapedMetrics
from fleetsim.sim.randomness import Draws

IDLE = ScrapedMetrics(0, 0, 0.0, 0.0)


@dataclass(slots=True)
class FakeRequest:
    request_id: int = 0
    attempt: int = 0
    arrival_s: float = 0.0
    prompt_tokens: int = 1000
    max_tokens: int = 200
    tenant: str = ""
    model: str = ""
    session: str | None = None
    priority: int = 0
    slo_class: str | None = None
    adapter: str = ""
    prefix: tuple[int, ...] = ()


@dataclass(slots=True)
class FakeReplica:
    replica: int = 0
    queued_tokens: int = 0
    running_tokens: int = 0
    outstanding_requests: int = 0
    cached: dict[tuple[int, ...], int] = field(default_factory=dict)
    scraped: ScrapedMetrics = IDLE

    @property
    def outstanding_tokens(self) -> int:
        return self.queued_tokens + self.running_tokens

    def cached_tokens(self, request: FakeRequest) -> int:
        return self.cached.get(request.prefix, 0)


@dataclass(slots=True)
class FakePool:
    replicas: Sequence[FakeReplica]
    name: str = "chat"
    model: str = "llama"
    now_s: float = 0.0
    prefill_tokens_per_s: float = 10_000.0


class CountingSequence(Sequence[FakeReplica]):
    """Replicas that are made when looked at, and counted."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.looked_at: list[int] = []

    @overload
    def __getitem__(self, index: int) -> FakeReplica: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FakeReplica]: ...
    def __getitem__(self, index: int | slice) -> FakeReplica | Sequence[FakeReplica]:
        assert isinstance(index, int)
        if not 0 <= index < self.n:
            raise IndexError
        self.looked_at.append(index)
        return FakeReplica(index)

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[FakeReplica]:
        return (self[i] for i in range(self.n))


def pool_of(n: int, **values: int) -> FakePool:
    return FakePool([FakeReplica(i, **values) for i in range(n)])


DRAWS = Draws(7, "routing/test")


def choose(policy: RoutingPolicy, request: FakeRequest, pool: FakePool) -> Decision:
    decision = policy.choose(request, pool, DRAWS)
    assert -1 <= decision.target < len(pool.replicas)
    return decision


def mean_wait_s(
    policy: RoutingPolicy, arrivals: Sequence[tuple[float, int]], n: int, tokens_per_s: float
) -> float:
    """Mean wait in n first-come-first-served queues, each working tokens_per_s, behind a policy.

    arrivals are (time, tokens), in order of time. A request counts as queued from dispatch to
    the end of its service.
    """
    replicas = [FakeReplica(i) for i in range(n)]
    pool = FakePool(replicas)
    free_at = [0.0] * n
    in_flight: list[list[tuple[float, int]]] = [[] for _ in range(n)]
    waited = 0.0
    for i, (now, tokens) in enumerate(arrivals):
        for replica, flying in zip(replicas, in_flight, strict=True):
            while flying and flying[0][0] <= now:
                replica.queued_tokens -= flying.pop(0)[1]
                replica.outstanding_requests -= 1
        pool.now_s = now
        target = choose(policy, FakeRequest(i, prompt_tokens=tokens), pool).target
        start = max(now, free_at[target])
        waited += start - now
        free_at[target] = start + tokens / tokens_per_s
        in_flight[target].append((free_at[target], tokens))
        replicas[target].queued_tokens += tokens
        replicas[target].outstanding_requests += 1
    return waited / len(arrivals)
