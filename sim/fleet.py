"""The fleet: pools of identical replicas, each with its policies and what is counted of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fleetsim.calibration import Profile
from fleetsim.policies.base import AdmissionPolicy, RoutingPolicy
from fleetsim.sim.clock import Clock
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.sim.engine.step_log import StepLog
from fleetsim.sim.engine.validity import ValidityWatch
from fleetsim.sim.prefix_knowledge import CacheEvents, NoKnowledge, OwnHistory, PrefixKnowledge
from fleetsim.sim.randomness import Draws
from fleetsim.sim.replica import READY, REQUESTED, Replica, ReplicaView
from fleetsim.sim.request import Journey
from fleetsim.sim.results.facts import OutsideFit
from fleetsim.sim.results.histogram import LogHistogram

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class PoolView:
    """What a policy sees of a pool (`fleetsim.policies.base.PoolView`)."""

    __slots__ = ("_clock", "model", "name", "prefill_tokens_per_s", "replicas")

    def __init__(self, clock: Clock, name: str, model: str, prefill_tokens_per_s: float) -> None:
        self._clock = clock
        self.name = name
        self.model = model
        self.prefill_tokens_per_s = prefill_tokens_per_s
        self.replicas: list[ReplicaView] = []

    @property
    def now_s(self) -> float:
        """Simulated time of this decision."""
        return self._clock.now


class Pool:
    """Identical replicas of one engine configuration.

    Args:
        clock: the simulation's clock.
        name, model: of the pool in the scenario, and in requests.
        profile, settings, cost: of its engines.
        routing, admission, draws: its policies and their chance.
        api_server_count: processes of each replica's API server; None is the profile's.
        ended: takes over journeys whose last token has left the engine.

    Attributes:
        requests: journeys dispatched to a replica and not yet out of its engine.
        requests_integral_s: the time integral of `requests`, kept apart from the journeys.
        itl: gaps between tokens.
    """

    def __init__(
        self,
        clock: Clock,
        name: str,
        model: str,
        profile: Profile,
        settings: EngineSettings,
        cost: StepCost,
        routing: RoutingPolicy,
        admission: AdmissionPolicy,
        draws: Draws,
        ended: Callable[[Journey], None],
        api_server_count: int | None = None,
    ) -> None:
        self.clock = clock
        self.name = name
        self.model = model
        self.profile = profile
        self.settings = settings
        self.cost = cost
        self.routing = routing
        self.admission = admission
        self.draws = draws
        self.api_server_count = api_server_count or profile.api_server.api_server_count
        self.watch = ValidityWatch.if_needed(profile.validity, settings)
        self.replicas: list[Replica] = []
        self._ready: list[Replica] = []
        self.view = PoolView(clock, name, model, prefill_tokens_per_s(settings, cost))
        self.itl = LogHistogram()
        self.requests = 0
        self.requests_integral_s = 0.0
        self._requests_since_s = 0.0
        self._ended = ended

    @property
    def needs_scraped(self) -> bool:
        """Whether a policy of this pool reads scraped gauges."""
        return self.routing.needs_scraped or self.admission.needs_scraped

    @property
    def needs_prefix(self) -> bool:
        """Whether a policy of this pool asks what is cached."""
        return self.routing.needs_prefix or self.admission.needs_prefix

    def add_replica(
        self,
        number: int,
        segment_blocks: list[int],
        knowledge: Callable[[], PrefixKnowledge],
        step_log: bool,
        leaps: bool,
    ) -> Replica:
        """Make a replica, not yet ready."""
        replica = Replica(
            self.clock,
            number,
            self,
            self.settings,
            self.cost,
            segment_blocks,
            knowledge(),
            self.profile.api_server,
            self.api_server_count,
            StepLog(self.steps) if step_log else None,
            self.watch,
            leaps,
        )
        assert replica.state == REQUESTED
        self.replicas.append(replica)
        return replica

    def make_ready(self, replica: Replica) -> None:
        """From now on the router may send requests to it."""
        replica.state = READY
        replica.ready_s = self.clock.now
        self._ready.append(replica)
        self.view.replicas.append(replica.view)

    def replica_of(self, journey: Journey) -> Replica:
        """The replica that serves a journey."""
        return self.replicas[journey.replica - self.replicas[0].number]

    def dispatch(self, journey: Journey, target: int) -> None:
        """Send a journey to the replica at `target` among the ready ones."""
        self._count(1)
        journey.pool = self.name
        self._ready[target].dispatch(journey)

    def cancel(self, journey: Journey) -> None:
        """The client gave up on a journey that is here."""
        self.replica_of(journey).cancel(journey)
        self._count(-1)

    def settle(self) -> None:
        """Bring the integral up to now."""
        self._count(0)

    def outside_fit(self) -> OutsideFit:
        """What of the work until now the profile does not cover."""
        saturated = sum(replica.api_server.saturated for replica in self.replicas)
        watch = self.watch
        if watch is None:
            return OutsideFit(requests_at_saturated_api_server=saturated)
        share = watch.outside / watch.steps if watch.steps else 0.0
        return OutsideFit(watch.outside, share, watch.too_long, saturated)

    def _count(self, change: int) -> None:
        now = self.clock.now
        self.requests_integral_s += self.requests * (now - self._requests_since_s)
        self._requests_since_s = now
        self.requests += change

    # -- told by replicas and engines --------------------------------------------------------

    def completed(self, journey: Journey) -> None:
        """A journey's last token has left the engine."""
        self._count(-1)
        self._ended(journey)

    def token_gap(self, gap_s: float) -> None:
        """A gap between tokens across a preemption."""
        self.itl.add_one(gap_s)

    def steps(self, durations_s: Floats, n_decodes: Ints) -> None:
        """Each decode of a step waited the step's duration for its token."""
        self.itl.add(durations_s, n_decodes)


def prefill_tokens_per_s(settings: EngineSettings, cost: StepCost) -> float:
    """Prompt tokens a second that a replica prefills: one full step of a fresh prompt, alone.

    The chapter's `prefill_tok_per_s`, derived from the profile instead of guessed.
    """
    chunk = min(settings.max_num_batched_tokens, settings.max_model_len - 1)
    return chunk / cost.step_s(0, 0, chunk, 1, chunk * chunk * 0.5, 0)


def make_knowledge(
    source: str, delay_s: float, pool: Pool, segment_tokens: list[int], segment_blocks: list[int]
) -> Callable[[], PrefixKnowledge]:
    """How the router knows what a replica of the pool has cached: one object per replica."""
    settings = pool.settings
    capacity_tokens = (settings.num_gpu_blocks - 1) * settings.block_size

    def make() -> PrefixKnowledge:
        if source == "none" or not pool.needs_prefix or not segment_tokens:
            return NoKnowledge()
        if source == "own_history":
            return OwnHistory(segment_tokens, capacity_tokens)
        return CacheEvents(pool.clock, settings.block_size, segment_blocks, delay_s)

    return make
