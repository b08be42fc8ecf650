"""The router: which pool, which replica, and whether at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetsim.sim.clock import Clock
from fleetsim.sim.fleet import Pool
from fleetsim.sim.request import Journey
from fleetsim.sim.results.recorder import Recorder


class Router:
    """Sends each request to a replica, or refuses it.

    Model routing is a lookup of the request's model. Of the pool, the routing policy chooses a
    replica, then the admission policy says whether the request may join it.

    Args:
        clock: the simulation's clock.
        pools: the fleet; the first pool of a model gets its requests.
        default_pool: for requests that name no model.
        refuse: ends a journey with a reason.
        decisions: takes every decision, if they are to be kept.
    """

    __slots__ = ("_clock", "_decisions", "_pool_of_model", "_refuse")

    def __init__(
        self,
        clock: Clock,
        pools: Sequence[Pool],
        default_pool: Pool,
        refuse: Callable[[Journey, str], None],
        decisions: Recorder | None = None,
    ) -> None:
        self._clock = clock
        self._pool_of_model = {pool.model: pool for pool in reversed(pools)}
        self._pool_of_model[""] = default_pool
        self._refuse = refuse
        self._decisions = decisions

    def context_tokens(self, model: str) -> int:
        """Context length of the pool that serves a model, 0 if none does."""
        pool = self._pool_of_model.get(model)
        return pool.settings.max_model_len if pool is not None else 0

    def route(self, journey: Journey) -> None:
        """A request comes from the gateway now."""
        request = journey.request
        pool = self._pool_of_model.get(request.model)
        if pool is None:
            self._refuse(journey, "unknown_model")
            return
        if request.prompt_tokens >= pool.settings.max_model_len:
            self._refuse(journey, "context_length")
            return
        view = pool.view
        decision = pool.routing.choose(request, view, pool.draws)
        target = decision.target
        if target < 0:
            self._refuse(journey, decision.reason or "no_replica")
            return
        verdict = pool.admission.admit(request, view.replicas[target], view)
        if self._decisions is not None:
            self._decisions.decision(
                self._clock.now,
                request.request_id,
                request.attempt,
                pool.name,
                view.replicas[target].replica,
                decision.reason if verdict.admitted else f"refused: {verdict.reason}",
                decision.scores,
            )
        if not verdict.admitted:
            self._refuse(journey, verdict.reason)
            return
        journey.admitted_s = self._clock.now
        pool.dispatch(journey, target)
