"""From a scenario to a result."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import nan
from pathlib import Path

from fleetsim.sim.build import Parts, build
from fleetsim.sim.client import ClosedLoop, OpenLoop, Patience
from fleetsim.sim.clock import CONTROL, READY, Clock, rank
from fleetsim.sim.engine.running import Livelock
from fleetsim.sim.fleet import Pool
from fleetsim.sim.gateway import Gateway
from fleetsim.sim.replica import READY as READY_STATE
from fleetsim.sim.replica import Replica
from fleetsim.sim.request import (
    CANCELLED,
    COMPLETED,
    REJECTED,
    UNFINISHED,
    Journey,
)
from fleetsim.sim.results.facts import PoolFacts, ReplicaRecord, RunFacts
from fleetsim.sim.results.finish import finish
from fleetsim.sim.results.recorder import Recorder, Status
from fleetsim.sim.results.result import Result
from fleetsim.sim.router import Router
from fleetsim.sim.scenario import Scenario, resolve, resolved_yaml
from fleetsim.sim.sessions import Sessions, Turns
from fleetsim.sim.telemetry import Sampler, Scraper
from fleetsim.traces import InputError

Progress = Callable[[float, float, int], None]
"""Told the simulated time, when arrivals end, and how many requests have ended."""

_EVENTS_BETWEEN_LOOKS = 2000


def simulate(
    scenario: Scenario,
    *,
    out: Path | None = None,
    progress: Progress | None = None,
    leaps: bool = True,
) -> Result:
    """Run a scenario to its end.

    Args:
        scenario: what to simulate.
        out: a new folder for the result; None keeps it in memory.
        progress: called now and then.
        leaps: many engine steps in one event where that is exact; off gives the same result,
            slower.

    Returns:
        The result; its status is "interrupted" if the user pressed Ctrl-C, and then what had
        not ended counts as unfinished.

    Raises:
        InputError: a trace or profile that cannot be used, a model that does not fit.
        OSError: the result cannot be written.
    """
    return Simulation(scenario, out, leaps).run(progress)


class Simulation:
    """One run: the parts wired together, and the end of every journey."""

    def __init__(self, scenario: Scenario, out: Path | None, leaps: bool = True) -> None:
        self.scenario = scenario = resolve(scenario)
        self.clock = Clock()
        self.parts: Parts = build(scenario, self.clock, self._completed, leaps)
        self.recorder = Recorder(out)
        self.arrived: dict[str, int] = {}
        self.ended = 0
        self._delay_s = scenario.client.network_delay_s
        self._open: dict[int, Journey] = {}
        self._stopped = False
        self.router = Router(
            self.clock,
            self.parts.pools,
            self.parts.default_pool,
            self._turn_away,
            self.recorder if scenario.router.log_decisions else None,
        )
        self.gateway = Gateway(
            self.clock,
            scenario.gateway,
            scenario.origin.folder,
            self.router.route,
            self._refuse,
        )
        self.client = self._clients()
        timeout_s = scenario.client.timeout_s
        self._patience = (
            Patience(self.clock, timeout_s, self._give_up) if timeout_s is not None else None
        )
        self._pool_by_name = {pool.name: pool for pool in self.parts.pools}

    def _clients(self) -> OpenLoop | ClosedLoop | Sessions:
        workload = self.parts.workload
        if self.parts.has_sessions:
            turns = Turns(self.parts.trace)
            return Sessions(self.clock, turns, workload.journey, self._delay_s, self._send)
        journeys = iter(workload)
        loop = self.scenario.workload.closed_loop
        if loop is None:
            return OpenLoop(self.clock, journeys, self._delay_s, self._send)
        return ClosedLoop(self.clock, journeys, self._delay_s, self._send, loop.concurrency)

    # -- the run ---------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> Result:
        """Start everything, step through the events, and account for what is left."""
        clock, pools = self.clock, self.parts.pools
        self.recorder.text("scenario.resolved.yaml", resolved_yaml(self.scenario))
        sampler = Sampler(clock, pools, self.scenario.results.sample_interval_s, self.recorder)
        for pool in pools:
            for replica in pool.replicas:
                clock.at(0.0, rank(READY, replica.number), partial(self._ready, pool, replica))
        Scraper(clock, pools, self.scenario.router.scrape_interval_s).start()
        sampler.start()
        self.client.start()
        status = self._step_through(progress)
        self._stopped = True
        for journey in list(self._open.values()):
            self._leave_unfinished(journey)
        sampler.close()
        for pool in pools:
            pool.settle()
            for replica in pool.replicas:
                replica.engine.close()
        return finish(self.recorder, self._facts(), self.scenario.slo, status)

    def _step_through(self, progress: Progress | None) -> Status:
        horizon_s = self.scenario.measurement.horizon_s
        if horizon_s is not None:
            # What is due at the horizon itself still happens.
            self.clock.at(horizon_s, rank(CONTROL, 0), lambda _: self.clock.stop())
        with _interrupt_flag() as interrupted, _quiet_collector(), self._livelock_explained():
            while self.clock.run_events(_EVENTS_BETWEEN_LOOKS):
                if interrupted.is_set():
                    return "interrupted"
                if progress is not None:
                    progress(self.clock.now, self.parts.arrivals_end_s, self.ended)
        return "complete"

    @contextmanager
    def _livelock_explained(self) -> Iterator[None]:
        try:
            yield
        except Livelock as error:
            replicas = [(pool, replica) for pool in self.parts.pools for replica in pool.replicas]
            pool, replica = max(replicas, key=lambda p: p[1].engine.scheduler.fruitless_preemptions)
            raise InputError(
                f"{self.scenario.origin.source}: pools.{pool.name}: at {self.clock.now:.3f} s the "
                f"requests of replica {replica.number} preempt each other for ever ({error}), as "
                "they would in vLLM; give it more KV blocks, fewer max_num_seqs, "
                "scheduler_reserve_full_isl: true, or the run a measurement.horizon_s"
            ) from None

    def _ready(self, pool: Pool, replica: Replica, _alarm: object) -> None:
        before = replica.state
        pool.make_ready(replica)
        self.recorder.transition(
            self.clock.now, pool.name, replica.number, before, READY_STATE, "there from the start"
        )

    # -- journeys --------------------------------------------------------------------------

    def _send(self, journey: Journey) -> None:
        """A request reaches the gateway."""
        request = journey.request
        self.arrived[request.tenant] = self.arrived.get(request.tenant, 0) + 1
        self._open[request.request_id] = journey
        if self._patience is not None:
            self._patience.watch(journey)
        self.gateway.arrive(journey)

    def _end(self, journey: Journey, outcome: str, reason: str, ended_s: float) -> None:
        """Every journey ends here, exactly once."""
        journey.outcome = outcome
        journey.reason = reason
        journey.ended_s = ended_s
        first_token_s = journey.first_token_s
        if first_token_s == first_token_s:
            journey.client_first_token_s = first_token_s + self._delay_s
        del self._open[journey.request.request_id]
        self.ended += 1
        self.recorder.journey(journey)
        if not self._stopped:
            self.client.ended(journey)
            if not self._open and self.client.exhausted:
                self.clock.stop()

    def _completed(self, journey: Journey) -> None:
        """The last token left the engine."""
        ended_s = journey.last_token_s + self._delay_s
        patience = self._patience
        if patience is not None and ended_s > patience.deadline_s(journey):
            # It is on the way to a client who will not wait for it.
            self._close(journey, CANCELLED, "timeout", patience.deadline_s(journey))
            return
        journey.finish_reason = "length" if journey.stops_at_length else "stop"
        self.gateway.ended(journey)
        self._end(journey, COMPLETED, "", ended_s)

    def _close(self, journey: Journey, outcome: str, reason: str, ended_s: float) -> None:
        self.gateway.ended(journey)
        self._end(journey, outcome, reason, ended_s)

    def _refuse(self, journey: Journey, reason: str) -> None:
        """The gateway says no."""
        self._end(journey, REJECTED, reason, self.clock.now + self._delay_s)

    def _turn_away(self, journey: Journey, reason: str) -> None:
        """The router says no."""
        self.gateway.turned_away(journey)
        self._refuse(journey, reason)

    def _give_up(self, journey: Journey) -> None:
        """The client's patience has run out."""
        now = self.clock.now
        if journey.pool:
            self._pool_by_name[journey.pool].cancel(journey)
            self._close(journey, CANCELLED, "timeout", now)
        else:
            self._end(journey, CANCELLED, "timeout", now)

    def _leave_unfinished(self, journey: Journey) -> None:
        """The clock stops while it is under way; nobody sends another in its place."""
        if journey.pool:
            self._pool_by_name[journey.pool].cancel(journey)
            journey.outcome = UNFINISHED
            self.gateway.ended(journey)
        self._end(journey, UNFINISHED, "", nan)

    # -- facts -----------------------------------------------------------------------------

    def _facts(self) -> RunFacts:
        measurement = self.scenario.measurement
        last_s = self.client.last_s
        end_s = last_s if measurement.horizon_s is None else min(measurement.horizon_s, last_s)
        parts = self.parts
        client = self.client
        return RunFacts(
            provenance=parts.provenance(),
            window_start_s=measurement.warm_up_s,
            window_end_s=max(end_s - measurement.cool_down_s, measurement.warm_up_s),
            end_s=self.clock.now,
            arrived=self.arrived,
            turns_not_issued=client.turns_not_issued() if isinstance(client, Sessions) else None,
            pools=tuple(self._pool_facts(pool) for pool in parts.pools),
            replicas=tuple(
                self._replica_record(pool, i)
                for pool in parts.pools
                for i in range(len(pool.replicas))
            ),
            usage=self.gateway.usage(),
        )

    @staticmethod
    def _pool_facts(pool: Pool) -> PoolFacts:
        schedulers = [replica.engine.scheduler for replica in pool.replicas]
        provenance = pool.profile.provenance
        return PoolFacts(
            name=pool.name,
            model=pool.model,
            profile=pool.profile.name,
            engine=f"vLLM {pool.settings.engine_version}, kernels {provenance.kernel_tables}",
            requests_integral_s=pool.requests_integral_s,
            itl=pool.itl,
            slow_paths={
                "shortage_steps": sum(s.shortage_steps for s in schedulers),
                "stalled_steps": sum(s.stalled_steps for s in schedulers),
            },
            outside_fit=pool.outside_fit(),
        )

    def _replica_record(self, pool: Pool, index: int) -> ReplicaRecord:
        replica = pool.replicas[index]
        engine, settings = replica.engine, pool.settings
        price = self.scenario.pools[pool.name].gpu_usd_per_hour
        assert price is not None  # filled in when the scenario was resolved
        return ReplicaRecord(
            pool=pool.name,
            replica=replica.number,
            gpus=pool.profile.gpus_per_replica,
            requested_s=0.0,
            ready_s=replica.ready_s,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            num_gpu_blocks=settings.num_gpu_blocks,
            steps=engine.steps,
            scheduled_tokens=engine.scheduled_tokens,
            busy_s=engine.busy_s,
            kv_usage_integral_s=replica.kv_usage_integral_s,
            kv_usage_max=replica.kv_usage_max,
            usd_per_gpu_hour=price,
        )


@contextmanager
def _interrupt_flag() -> Iterator[threading.Event]:
    """Ctrl-C sets a flag, so that it never tears a half-done event; a second one stops at once."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def on_interrupt(_signal: int, _frame: object) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Let the garbage collector leave alone what was there before the run, and come less often.

    A run makes many objects and no cycles; looking through all modules again and again cost
    about 7 % of it.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
