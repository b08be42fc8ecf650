"""What a policy is shown, and what it answers.

A policy is a plain class with one method (a limiter, which also hears how a request ended, has
three). It is shown views, never the fleet itself: a view is read-only, may be out of date where
its signal is (see `ScrapedMetrics`), and never tells a request's true output length. Times are
seconds of simulated time, work is counted in tokens.

One instance is built per pool (a limiter: per key that it limits), so a policy may remember
things between calls. It must not draw chance from anywhere but the `DrawsView` that it is handed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict


class RequestView(Protocol):
    """What a client asked, as far as a router can know it."""

    @property
    def request_id(self) -> int:
        """The request's number; the entity by which its chance is keyed."""

    @property
    def attempt(self) -> int:
        """0 for the client's first try, then one more for each retry."""

    @property
    def arrival_s(self) -> float:
        """When the client sent its first attempt."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""

    @property
    def max_tokens(self) -> int:
        """The cap on output tokens; the true output length is usually far below, and hidden."""

    @property
    def tenant(self) -> str:
        """Who pays; "" where the workload does not say."""

    @property
    def model(self) -> str:
        """The model that was asked for; "" where the workload does not say."""

    @property
    def session(self) -> str | None:
        """The conversation that this turn belongs to."""

    @property
    def priority(self) -> int:
        """vLLM's request priority: lower is served first."""

    @property
    def slo_class(self) -> str | None:
        """The SLO class, if the workload has them."""

    @property
    def adapter(self) -> str:
        """The LoRA adapter that was asked for; "" for none."""

    @property
    def prefix(self) -> tuple[int, ...]:
        """Ids of the shared prefix segments of the prompt, from its start; () if none is known.

        A segment belongs to one adapter, as its KV does.
        """


class ScrapedMetrics(NamedTuple):
    """A replica's gauges as last scraped, under vLLM's metric names.

    Attributes:
        num_requests_running: requests in the running batch.
        num_requests_waiting: requests in the engine's queue.
        kv_cache_usage_perc: share of KV blocks in use, 0 to 1 (vLLM's name says percent).
        age_s: seconds since the scrape; inf before the first one, when the rest is 0.
    """

    num_requests_running: int
    num_requests_waiting: int
    kv_cache_usage_perc: float
    age_s: float


class ReplicaView(Protocol):
    """One ready replica as the router sees it.

    The four counters are the router's own: exact, without delay, and they move at the instant of
    a dispatch, so a burst at one instant is seen by its own second request.
    """

    @property
    def replica(self) -> int:
        """The replica's number: the same for its whole life, unlike its index in the pool."""

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens of the requests dispatched here whose first token has not come yet."""

    @property
    def running_tokens(self) -> int:
        """Context tokens (prompt and output so far) of the requests past their first token."""

    @property
    def outstanding_requests(self) -> int:
        """Requests dispatched here and not ended: queued and running ones."""

    @property
    def outstanding_tokens(self) -> int:
        """`queued_tokens` + `running_tokens`."""

    @property
    def scraped(self) -> ScrapedMetrics:
        """The replica's own gauges, as old as the last scrape. Needs `needs_scraped`."""

    def cached_tokens(self, request: RequestView) -> int:
        """Tokens of the prompt's start that this replica is believed to hold in its KV cache.

        Believed, because the scenario says which knowledge feeds it: exact events with a delay,
        the router's memory of where it sent what, or none (then it is 0). Needs `needs_prefix`.
        """


class PoolView(Protocol):
    """The ready replicas of one pool at one instant."""

    @property
    def name(self) -> str:
        """The pool's name in the scenario."""

    @property
    def model(self) -> str:
        """The model that its replicas serve."""

    @property
    def now_s(self) -> float:
        """Simulated time of this decision."""

    @property
    def replicas(self) -> Sequence[ReplicaView]:
        """The ready replicas, never empty. Looking at two of a thousand costs two."""

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens that one replica prefills in a second, derived from its profile."""


class DrawsView(Protocol):
    """Seeded chance. The same entity and attempt give the same number in every run, however
    often and in whatever order it is asked for; pass the request's id and attempt.
    """

    def bits(self, entity: int, attempt: int, /) -> int:
        """64 random bits."""

    def uniform(self, entity: int, attempt: int, /) -> float:
        """A float in [0, 1)."""

    def integer(self, n: int, entity: int, attempt: int, /) -> int:
        """An integer in [0, n)."""

    def pair(self, n: int, entity: int, attempt: int, /) -> tuple[int, int]:
        """Two different integers in [0, n), in either order with equal chance; n >= 2."""


@dataclass(slots=True)
class Decision:
    """A routing policy's answer.

    Attributes:
        target: index into `pool.replicas`, or -1 if none of them will do.
        reason: a few words for the decision log.
        scores: the value that won, then those it beat, where the policy keeps them.
    """

    target: int
    reason: str = ""
    scores: tuple[float, ...] | None = None


@dataclass(slots=True)
class Verdict:
    """Yes or no, from an admission policy or a limiter. No means HTTP 429.

    Attributes:
        admitted: whether the request may go on.
        reason: why not; recorded as the journey's reason.
        retry_after_s: the Retry-After sent with a refusal; None where waiting would not help or
            nobody can say how long.
    """

    admitted: bool
    reason: str = ""
    retry_after_s: float | None = None


ADMITTED = Verdict(True)
"""The plain yes, shared."""


class RoutingPolicy(Protocol):
    """Which replica of a pool serves a request.

    Attributes:
        needs_scraped: whether it reads `ReplicaView.scraped`.
        needs_prefix: whether it calls `ReplicaView.cached_tokens`.

    Both are read on the built instance, so that parameters may decide; nothing is gathered that
    no policy of the pool asks for.
    """

    needs_scraped: bool
    needs_prefix: bool

    def choose(self, request: RequestView, pool: PoolView, draws: DrawsView) -> Decision:
        """Choose a replica of `pool`. Called once per attempt, before admission."""


class AdmissionPolicy(Protocol):
    """Whether a request may join the replica that routing chose for it.

    `needs_scraped` and `needs_prefix` are as for `RoutingPolicy`.
    """

    needs_scraped: bool
    needs_prefix: bool

    def admit(self, request: RequestView, replica: ReplicaView, pool: PoolView) -> Verdict:
        """Admit or refuse.

        There is nothing to settle afterwards: the view's counters rise at dispatch only, and fall
        at the first token, the end and a failure.
        """


class Limiter(Protocol):
    """A limit of one key at the gateway: reserve an estimate, reconcile with the truth.

    Of each granted reservation exactly one `reconcile` or `cancel` follows. Times never go back.

    Attributes:
        largest_estimate_tokens: an estimate above it can never be reserved; inf if any can.
    """

    @property
    def largest_estimate_tokens(self) -> float:
        """An estimate above it can never be reserved."""

    def try_reserve(self, now_s: float, estimated_tokens: int) -> Verdict:
        """Reserve prompt + max_tokens, or refuse and leave no trace."""

    def reconcile(self, now_s: float, estimated_tokens: int, actual_tokens: int) -> None:
        """The request ended (well or badly) having used `actual_tokens` of its estimate."""

    def cancel(self, now_s: float, estimated_tokens: int) -> None:
        """The request was refused further on: take the reservation back as if never made."""


class PolicyParams(BaseModel):
    """Base of a policy's parameters: unknown keys, numbers in quotes and NaN are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
