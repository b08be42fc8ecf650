"""One vLLM engine on the simulated clock: when steps run, who gets to see what, and leaps.

A step is priced by its batch (`step_cost.py`), one step runs at a time, and between two steps the
scheduler takes arrivals and aborts in, as vLLM's engine core does:

- Sync scheduling (`EngineCore.step`): at a step's end come aborts, the update, then arrivals up to
  now, then the next schedule.
- Async scheduling (`EngineCore.step_with_batch_queue`, two batches deep): step N + 1 is scheduled
  when N - 1 ends, which is when N starts. So it sees only what had arrived by the start of N, and
  of the finished only those of N - 1 and before. We evaluate that same decision at the end of N,
  just before N's update: nothing it depends on has changed in between, one step is in flight
  instead of two, and the rest is as in sync scheduling. (Gauges therefore show a request as
  waiting up to one step longer than vLLM's.)

Leaps: while the batch stays the same (decodes only, no arrival, no end, enough blocks), many
steps are one event. What cuts a leap short (an arrival, an abort) does so at the boundary at which
the step-by-step engine would have noticed it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import count
from math import inf
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..clock import SCHEDULE, STEP_END, Alarm, Clock
from .scheduler import Batch, Scheduler
from .sequence import DECODE, GONE, OUTSIDE, Sequence
from .settings import EngineSettings
from .step_cost import StepCost

_LEAP_STEPS = 256
_FEW_STEPS = 40
_LOG_STEPS = 16384


class EngineListener(Protocol):
    """Who is told what the engine's requests go through; one call per event of a request."""

    def scheduled(self, sequence: Sequence, now_s: float) -> None:
        """It got its place (again, if it had been preempted)."""

    def preempted(self, sequence: Sequence, now_s: float, last_token_s: float) -> None:
        """It lost its place and blocks and waits to recompute.

        Its last token so far, if it has any, is out at `last_token_s`: under async scheduling
        one is still under way when it is preempted.
        """

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        """The step that ended its prefill has ended; after a preemption, the next token."""

    def finished(self, sequence: Sequence, now_s: float) -> None:
        """Its last token is out and its blocks are free."""

    def cache_changed(self) -> None:
        """The prefix cache's contents changed; only if `BlockPool.changes` is kept."""


class StepLog(Protocol):
    """Takes the engine's decode steps; how they are cut into chunks has no meaning."""

    def steps(self, durations_s: npt.NDArray[np.float64], n_decodes: npt.NDArray[np.int64]) -> None:
        """Duration and number of decoding sequences, at least one, of each step."""


class Engine:
    """One replica's engine.

    Args:
        clock: the simulation's clock.
        component: its number, which orders it among others at one instant.
        settings: as vLLM was started.
        cost: seconds of a step.
        listener: is told what happens to requests.
        step_log: takes the steps, or None.
        leaps: many steps in one event where that is exact; off only to test that it is.

    Attributes:
        steps, scheduled_tokens: done so far.
        busy_s: time with a step in flight, up to when it last fell idle.
    """

    __slots__ = (
        "_aborts",
        "_alarm",
        "_arrivals",
        "_busy_since_s",
        "_due_s",
        "_ends_s",
        "_firsts",
        "_leap_steps",
        "_log",
        "_log_ends_s",
        "_log_lengths",
        "_log_n",
        "_n_decodes",
        "_number",
        "_start_s",
        "busy_s",
        "clock",
        "component",
        "cost",
        "events",
        "lag",
        "listener",
        "scheduled_tokens",
        "scheduler",
        "steps",
    )

    def __init__(
        self,
        clock: Clock,
        component: int,
        settings: EngineSettings,
        cost: StepCost,
        listener: EngineListener,
        step_log: StepLog | None = None,
        leaps: bool = True,
    ) -> None:
        self.clock = clock
        self.component = component
        self.cost = cost
        self.listener = listener
        self.scheduler = Scheduler(settings)
        self.lag = settings.async_scheduling
        self.steps = 0
        self.scheduled_tokens = 0
        self.busy_s = 0.0
        self.events = 0
        self._busy_since_s: float | None = None
        self._leap_steps = _LEAP_STEPS if leaps else 1
        self._alarm: Alarm | None = None
        self._due_s = inf
        # By time of arrival, some of it still to come; the number keeps their order.
        self._arrivals: list[tuple[float, int, Sequence]] = []
        self._number = count()
        self._aborts: list[Sequence] = []
        # The step in flight with its decodes, and behind it those steps that are sure to follow.
        self._start_s = 0.0
        self._ends_s: list[float] = []
        self._n_decodes = 0
        self._firsts: list[Sequence] = []
        # Ends of steps, and how many decodes got a token then: that many of so many steps.
        self._log = step_log
        self._log_ends_s: list[float] = []
        self._log_n: list[int] = []
        self._log_lengths: list[int] = []

    # -- from outside ----------------------------------------------------------------------

    def submit(self, sequence: Sequence, arrival_s: float) -> None:
        """A request will reach the engine core at `arrival_s`, now or later."""
        arrivals = self._arrivals
        entry = (arrival_s, next(self._number), sequence)
        if arrivals and arrivals[-1][0] > arrival_s:
            insort(arrivals, entry)
        else:
            arrivals.append(entry)
        ends = self._ends_s
        if not ends:
            if arrival_s < self._due_s:
                self._wake_at(arrival_s)
        elif len(ends) > 1 and not self._indifferent():
            self._cut(self._last_step_before(arrival_s))

    def abort(self, sequence: Sequence) -> None:
        """The client gave up; its place and blocks are free when the step in flight has ended."""
        if sequence.state == OUTSIDE and not self._waits_in_vllm(sequence):
            sequence.state = GONE
        elif sequence.state != GONE:
            ends = self._ends_s
            if self.lag and ends and self._start_s == self.clock.now:
                # Between an update and the schedule that follows it: this one is in time for it.
                self._cut(0)
                self.scheduler.abort(sequence)
                return
            self._aborts.append(sequence)
            if ends:
                self._cut(bisect_left(ends, self.clock.now))
            elif self._due_s > self.clock.now:
                self._wake_at(self.clock.now)

    def num_requests_waiting(self) -> int:
        """vLLM's gauge, those included that the scheduler has not looked at yet."""
        now = self.clock.now
        return self.scheduler.n_waiting + sum(t <= now for t, _, _ in self._arrivals)

    def num_requests_running(self) -> int:
        """vLLM's gauge."""
        return self.scheduler.n_running

    def used_blocks(self) -> int:
        """KV blocks held now."""
        scheduler = self.scheduler
        used = scheduler.pool.usable_blocks - scheduler.pool.num_free_blocks
        started = self._leap_steps_started()
        return used + scheduler.blocks_needed(started) if started else used

    def decode_tokens(self) -> int:
        """Context tokens of the sequences that decode now."""
        scheduler = self.scheduler
        return scheduler.context_tokens + self._leap_steps_started() * scheduler.n_decodes

    def delivered_tokens(self, sequence: Sequence) -> int:
        """Output tokens of a sequence that are out by now."""
        if sequence.state != DECODE:
            return sequence.generated
        # Scheduled steps, less the one in flight.
        steps = self.scheduler.step + self._leap_steps_started() - bool(self._ends_s)
        return max(steps - sequence.offset + 1 - sequence.prompt_tokens, 0)

    def close(self) -> None:
        """The simulation ends here: account for the steps that have begun by now."""
        if self._ends_s:
            self._account(self._leap_steps_started())
        if self._busy_since_s is not None:
            self.busy_s += self.clock.now - self._busy_since_s
            self._busy_since_s = None
        self._flush_log()

    # -- steps -----------------------------------------------------------------------------

    def _on_step_end(self, alarm: Alarm) -> None:
        if alarm is not self._alarm:
            return  # a leap was cut after this was set
        self.events += 1
        ends = self._ends_s
        scheduler = self.scheduler
        now = ends[-1]
        leap = len(ends) - 1
        if leap:
            scheduler.leap(leap)
        self._account(leap)
        batch = None
        if self.lag:
            start = ends[-2] if leap else self._start_s
            if self._arrivals:
                self._take_arrivals(start)
            batch = scheduler.schedule()
            if scheduler.preempted or (batch is not None and batch.admitted):
                self._tell(batch, start, now)
        if self._aborts:
            self._do_aborts()
        listener = self.listener
        if self._firsts:
            for sequence in self._firsts:
                if sequence.state != GONE:
                    listener.first_token(sequence, now)
        for sequence in scheduler.update():
            listener.finished(sequence, now)
        if scheduler.pool.changes:
            listener.cache_changed()
        if batch is not None:
            self._begin(batch, now)
            return
        self._ends_s = []
        if self.lag or self.clock.peek() == now:
            # What happens at this very instant comes first: an arrival now is in this schedule.
            self._wake_at(now)
        else:
            self._wake(alarm)

    def _wake_at(self, time_s: float) -> None:
        self._due_s = time_s
        self._alarm = self.clock.at(time_s, SCHEDULE, self.component, self._wake)

    def _wake(self, alarm: Alarm) -> None:
        """Nothing is in flight: schedule with all that is here, or fall idle."""
        if alarm is not self._alarm:
            return
        now = self.clock.now
        self._due_s = inf
        if self._arrivals:
            self._take_arrivals(now)
        if self._aborts:
            self._do_aborts()
        scheduler = self.scheduler
        batch = None
        if scheduler.n_waiting or scheduler.n_running:
            batch = scheduler.schedule()
            self._tell(batch, now, now)
            while batch is None and scheduler.preempted:
                # An empty step takes no time; what it freed is for the next one.
                batch = scheduler.schedule()
                self._tell(batch, now, now)
        if batch is None:
            if self._busy_since_s is not None:
                self.busy_s += now - self._busy_since_s
                self._busy_since_s = None
            if self._arrivals:
                self._wake_at(self._arrivals[0][0])
            return
        if self._busy_since_s is None:
            self._busy_since_s = now
            self._log_ends_s.append(now)
            self._log_n.append(0)
            self._log_lengths.append(1)
        self._begin(batch, now)

    def _begin(self, batch: Batch, now: float) -> None:
        """The step starts now; find out how many plain ones are sure to follow."""
        n = self._n_decodes = batch.n_decodes
        self._start_s = now
        self._firsts = batch.firsts
        if batch.n_prefills:
            end = now + self.step_s(batch)
            self._ends_s = [end]
            self.scheduled_tokens += n + batch.prefill_tokens
        else:
            constant, per_token, floor, extra = self.cost.decode_terms(n)
            duration = constant + per_token * batch.kv_tokens
            duration = (duration if duration > floor else floor) + extra
            end = now + duration
            self._ends_s = [end]
            self.scheduled_tokens += n
            most = self._leap_steps
            if not self._arrivals or self._indifferent():
                steps = self.scheduler.leap_limit(most)
                if steps > 0:
                    end = self._extend(end, steps)
            else:
                # No further than the next arrival; later steps are rarely shorter.
                arrival_s = self._arrivals[0][0]
                steps = self.scheduler.leap_limit(min(most, int((arrival_s - now) / duration) + 2))
                if steps > 0:
                    end = self._extend(end, steps)
                    last = self._last_step_before(arrival_s)
                    if last < steps:
                        del self._ends_s[last + 1 :]
                        end = self._ends_s[-1]
        self._alarm = self.clock.at(end, STEP_END, self.component, self._on_step_end)

    def _extend(self, end: float, steps: int) -> float:
        """Work out when the next decode steps of the same batch end."""
        scheduler = self.scheduler
        n = scheduler.n_decodes
        kv = scheduler.context_tokens
        if steps >= _FEW_STEPS:
            run = self.cost.decode_run_s(n, kv, steps)
            run[0] += end
            self._ends_s += np.add.accumulate(run).tolist()
            return self._ends_s[-1]
        constant, per_token, floor, extra = self.cost.decode_terms(n)
        add = self._ends_s.append
        for _ in range(steps):
            duration = constant + per_token * kv
            end += (duration if duration > floor else floor) + extra
            add(end)
            kv += n
        return end

    def step_s(self, batch: Batch) -> float:
        """Seconds of a step with a prefill in it."""
        return self.cost.step_s(
            batch.n_decodes,
            batch.kv_tokens,
            batch.prefill_tokens,
            batch.n_prefills,
            batch.prefill_sq * 0.5,
            batch.prefill_ctx,
        )

    # -- inside ----------------------------------------------------------------------------

    def _indifferent(self) -> bool:
        """Under FCFS, arrivals behind a head of line that cannot go in change nothing."""
        scheduler = self.scheduler
        return scheduler.head_blocked and scheduler.n_waiting > 0 and not scheduler.by_priority

    def _waits_in_vllm(self, sequence: Sequence) -> bool:
        """Whether vLLM would have it in its queue by now, though we have not looked at it yet."""
        ends = self._ends_s
        if not ends:
            return False
        step = bisect_left(ends, self.clock.now)
        start_s = ends[step - 1] if step else self._start_s
        return any(s is sequence and t <= start_s for t, _, s in self._arrivals)

    def _last_step_before(self, arrival_s: float) -> int:
        """Index of the step in flight at whose end a schedule can first see an arrival.

        That is the first step that ends (sync) or starts (async) at or after it.
        """
        if not self.lag:
            return bisect_left(self._ends_s, arrival_s)
        if self._start_s >= arrival_s:
            return 0
        return bisect_left(self._ends_s, arrival_s) + 1

    def _cut(self, last: int) -> None:
        """End the leap with step `last` of those in flight."""
        ends = self._ends_s
        if last < len(ends) - 1:
            del ends[last + 1 :]
            self._alarm = self.clock.at(ends[-1], STEP_END, self.component, self._on_step_end)

    def _leap_steps_started(self) -> int:
        ends = self._ends_s
        if len(ends) < 2:
            return 0
        return min(bisect_right(ends, self.clock.now), len(ends) - 1)

    def _account(self, leap: int) -> None:
        """Count the step in flight, and `leap` steps behind it."""
        ends = self._ends_s
        self.steps += 1 + leap
        self._log_n.append(self._n_decodes)
        self._log_lengths.append(1)
        if leap:
            n = self.scheduler.n_decodes
            self.scheduled_tokens += leap * n
            self._log_n.append(n)
            self._log_lengths.append(leap)
        self._log_ends_s += ends if len(ends) == leap + 1 else ends[: leap + 1]
        if len(self._log_ends_s) >= _LOG_STEPS:
            self._flush_log()

    def _flush_log(self) -> None:
        """Hand the steps over; the last end stays, for the next step to be measured from."""
        ends = self._log_ends_s
        if self._log is not None and len(ends) > 1:
            durations = np.diff(np.array(ends))
            n_decodes = np.repeat(self._log_n, self._log_lengths)[1:]
            decoding = n_decodes > 0
            self._log.steps(durations[decoding], n_decodes[decoding])
        self._log_ends_s, self._log_n, self._log_lengths = ends[-1:], [0], [1]

    def _take_arrivals(self, until_s: float) -> None:
        arrivals = self._arrivals
        taken = 0
        for arrival_s, _, sequence in arrivals:
            if arrival_s > until_s:
                break
            taken += 1
            if sequence.state == OUTSIDE:
                self.scheduler.add(sequence)
        if taken:
            del arrivals[:taken]

    def _do_aborts(self) -> None:
        aborts, self._aborts = self._aborts, []
        for sequence in aborts:
            self.scheduler.abort(sequence)

    def _tell(self, batch: Batch | None, now: float, last_token_s: float) -> None:
        for sequence in self.scheduler.preempted:
            self.listener.preempted(sequence, now, last_token_s)
        if batch is not None:
            for sequence in batch.admitted:
                self.listener.scheduled(sequence, now)
