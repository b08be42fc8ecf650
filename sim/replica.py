"""One replica: an engine, what the router keeps about it, and the journeys it serves."""

from __future__ import annotations

from math import isnan
from typing import Protocol

from fleetsim.calibration.overheads import ApiServer as ApiServerCosts
from fleetsim.policies.base import RequestView, ScrapedMetrics
from fleetsim.sim.api_server import ApiServer
from fleetsim.sim.clock import Clock
from fleetsim.sim.engine.engine import Engine
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.sim.engine.step_log import StepLog
from fleetsim.sim.engine.validity import ValidityWatch
from fleetsim.sim.prefix_knowledge import CacheEvents, OwnHistory, PrefixKnowledge
from fleetsim.sim.request import Journey

# The life of a replica. Start-up and draining have states; a fixed fleet is ready from the start.
REQUESTED = "requested"
STARTING = "starting"
READY = "ready"
DRAINING = "draining"
STOPPED = "stopped"

_NEVER_SCRAPED = ScrapedMetrics(0, 0, 0.0, float("inf"))


class ReplicaView:
    """What a policy sees of a replica (`fleetsim.policies.base.ReplicaView`).

    The counters are the router's own and exact: they move at dispatch, first token and end.
    """

    __slots__ = (
        "_clock",
        "_engine",
        "_knowledge",
        "_scraped",
        "_scraped_s",
        "outstanding_requests",
        "queued_tokens",
        "replica",
    )

    def __init__(
        self, clock: Clock, replica: int, engine: Engine, knowledge: PrefixKnowledge
    ) -> None:
        self.replica = replica
        self.queued_tokens = 0
        self.outstanding_requests = 0
        self._clock = clock
        self._engine = engine
        self._knowledge = knowledge
        self._scraped = _NEVER_SCRAPED
        self._scraped_s = 0.0

    @property
    def running_tokens(self) -> int:
        """Context tokens of the requests past their first token; the router proxies them all."""
        return self._engine.decode_tokens()

    @property
    def outstanding_tokens(self) -> int:
        """Queued and running tokens."""
        return self.queued_tokens + self._engine.decode_tokens()

    @property
    def scraped(self) -> ScrapedMetrics:
        """The replica's own gauges, as of the last scrape."""
        scraped = self._scraped
        if scraped is _NEVER_SCRAPED:
            return scraped
        return scraped._replace(age_s=self._clock.now - self._scraped_s)

    def cached_tokens(self, request: RequestView) -> int:
        """What the configured knowledge says."""
        return self._knowledge.cached_tokens(request)


class PoolOfReplica(Protocol):
    """What a replica needs of its pool."""

    def completed(self, journey: Journey) -> None:
        """A journey's last token has left the engine."""

    def token_gap(self, gap_s: float) -> None:
        """A gap between two tokens that was longer than a step, by a preemption."""


class Replica:
    """One replica of a pool.

    Args:
        clock: the simulation's clock.
        number: its stable number in the fleet; orders it among others at one instant.
        pool: takes ended journeys, and counts the requests inside.
        settings, cost: of its engine.
        segment_blocks: whole KV blocks of each prefix segment, by id.
        knowledge: the router's belief about its cache; `CacheEvents` is told of its changes.
        api: costs of its API server; api_server_count: processes of it.
        step_log: takes its steps.
        watch: counts what is outside the profile's fit, or None where nothing can be.
        leaps: see `Engine`.
    """

    __slots__ = (
        "_clock",
        "_events",
        "_last_token_s",
        "_own_history",
        "_pool",
        "_segment_blocks",
        "_sequences",
        "_waiting_since_s",
        "_watch",
        "api_server",
        "engine",
        "kv_usage_integral_s",
        "kv_usage_max",
        "number",
        "ready_s",
        "state",
        "view",
    )

    def __init__(
        self,
        clock: Clock,
        number: int,
        pool: PoolOfReplica,
        settings: EngineSettings,
        cost: StepCost,
        segment_blocks: list[int],
        knowledge: PrefixKnowledge,
        api: ApiServerCosts,
        api_server_count: int,
        step_log: StepLog | None,
        watch: ValidityWatch | None = None,
        leaps: bool = True,
    ) -> None:
        self.number = number
        self.state = REQUESTED
        self.ready_s = float("nan")
        self.engine = Engine(clock, number, settings, cost, self, step_log, leaps, watch)
        self.api_server = ApiServer(api, api_server_count, self.engine, cost)
        self.view = ReplicaView(clock, number, self.engine, knowledge)
        self.kv_usage_integral_s = 0.0
        self.kv_usage_max = 0.0
        self._clock = clock
        self._pool = pool
        self._segment_blocks = segment_blocks
        self._own_history = knowledge if isinstance(knowledge, OwnHistory) else None
        self._events = knowledge if isinstance(knowledge, CacheEvents) else None
        if self._events is not None:
            self.engine.scheduler.pool.changes = self._events.changes
        self._watch = watch
        self._sequences: dict[int, Sequence] = {}
        # Of preempted sequences: since when they wait to resume, and, until their next token,
        # when their last one was out.
        self._waiting_since_s: dict[Sequence, float] = {}
        self._last_token_s: dict[Sequence, float] = {}

    # -- requests --------------------------------------------------------------------------

    def dispatch(self, journey: Journey) -> None:
        """The router sends a request here now."""
        now = self._clock.now
        request = journey.request
        prompt_tokens = request.prompt_tokens
        journey.dispatched_s = now
        journey.replica = self.number
        journey.attempts += 1
        view = self.view
        view.queued_tokens += prompt_tokens
        view.outstanding_requests += 1
        if self._own_history is not None:
            self._own_history.dispatched(request)
        blocks = self._segment_blocks
        prefix = request.prefix
        if journey.output_segments:
            prefix += journey.output_segments
        sequence = Sequence(
            request.request_id,
            now,
            prompt_tokens,
            journey.output_tokens,
            journey.capped,
            [(segment, blocks[segment]) for segment in prefix if blocks[segment]] if prefix else [],
            request.priority,
            journey,
            request.adapter,
        )
        self._sequences[request.request_id] = sequence
        if self._watch is not None:
            self._watch.request(prompt_tokens + journey.output_tokens)
        journey.queued_s = queued_s = self.api_server.take(now, prompt_tokens)
        self.engine.submit(sequence, queued_s)

    def cancel(self, journey: Journey) -> None:
        """The client has gone: what was delivered until now stands, the rest is not wanted."""
        sequence = self._sequences.pop(journey.request.request_id)
        self.stop_journey(journey, sequence)
        self.engine.abort(sequence)

    def stop_journey(self, journey: Journey, sequence: Sequence) -> None:
        """Note how far a journey got that ends before its last token."""
        view = self.view
        view.outstanding_requests -= 1
        if isnan(journey.first_token_s):
            view.queued_tokens -= journey.request.prompt_tokens
        else:
            journey.delivered_tokens = self.engine.delivered_tokens(sequence)
        self._forget_preemption(sequence, self._clock.now)

    def in_flight(self) -> list[tuple[Journey, Sequence]]:
        """Journeys that have not ended, in the order in which they came."""
        return [(sequence.owner, sequence) for sequence in self._sequences.values()]

    # -- told by the engine ----------------------------------------------------------------

    def scheduled(self, sequence: Sequence, now_s: float) -> None:
        """It begins, or resumes."""
        journey: Journey = sequence.owner
        if journey.outcome:
            return  # decided before its client gave up, and told after
        if sequence.preemptions:
            self._add_stall(journey, now_s - self._waiting_since_s.pop(sequence))
            return
        journey.scheduled_s = now_s
        journey.cached_tokens = sequence.hit_tokens

    def preempted(self, sequence: Sequence, now_s: float, last_token_s: float) -> None:
        """It lost its place."""
        journey: Journey = sequence.owner
        if journey.outcome:
            return
        journey.preemptions += 1
        self._waiting_since_s[sequence] = now_s
        if sequence.generated:
            self._last_token_s.setdefault(sequence, last_token_s)

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        """Its first token is out, or the first one after a preemption."""
        journey: Journey = sequence.owner
        if isnan(journey.first_token_s):
            self.view.queued_tokens -= journey.request.prompt_tokens
            if sequence.preemptions and sequence in self._waiting_since_s:
                # Preempted with this token under way: until now it waited before its first token.
                self._add_stall(journey, now_s - self._waiting_since_s[sequence])
                self._waiting_since_s[sequence] = now_s
            journey.first_token_s = now_s
        elif sequence in self._last_token_s:
            self._pool.token_gap(now_s - self._last_token_s[sequence])
            if sequence in self._waiting_since_s:
                self._last_token_s[sequence] = now_s
            else:
                del self._last_token_s[sequence]

    def finished(self, sequence: Sequence, now_s: float) -> None:
        """Its last token is out."""
        journey: Journey = sequence.owner
        del self._sequences[sequence.request_id]
        if self._last_token_s:
            self._forget_preemption(sequence, now_s)
        self.view.outstanding_requests -= 1
        journey.last_token_s = now_s
        journey.delivered_tokens = journey.output_tokens
        self._pool.completed(journey)

    def cache_changed(self) -> None:
        """The prefix cache changed and somebody listens."""
        assert self._events is not None
        self._events.stepped()

    def _forget_preemption(self, sequence: Sequence, now_s: float) -> None:
        """It ends, perhaps while it waits to resume."""
        since_s = self._waiting_since_s.pop(sequence, None)
        if since_s is not None:
            self._add_stall(sequence.owner, now_s - since_s)
        self._last_token_s.pop(sequence, None)

    @staticmethod
    def _add_stall(journey: Journey, stall_s: float) -> None:
        if isnan(journey.first_token_s):
            journey.prefill_stall_s += stall_s
        else:
            journey.decode_stall_s += stall_s

    # -- telemetry -------------------------------------------------------------------------

    def scrape(self) -> None:
        """Refresh the gauges that policies see."""
        engine = self.engine
        view = self.view
        view._scraped = ScrapedMetrics(
            engine.num_requests_running(),
            engine.num_requests_waiting(),
            self.kv_usage(),
            0.0,
        )
        view._scraped_s = self._clock.now

    def kv_usage(self) -> float:
        """vLLM's kv_cache_usage_perc: share of the usable blocks that is held, 0 to 1."""
        return self.engine.used_blocks() / self.engine.scheduler.pool.usable_blocks
