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

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..clock import SCHEDULE, STEP_END, Alarm, Clock
from .scheduler import Batch, Scheduler
from .sequence import DECODE, GONE, OUTSIDE, Sequence
from .settings import EngineSettings
from .step_cost import StepCost

_LEAP_STEPS = 256
_FEW_STEPS = 24
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
    """Takes the engine's steps, in order, in chunks whose size does not depend on leaps."""

    def steps(
        self, durations_s: npt.NDArray[np.float64], n_decodes: npt.NDArray[np.int64]
    ) -> None:
        """Duration and number of decoding sequences of consecutive steps."""


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
        "_durations_s",
        "_ends_s",
        "_firsts",
        "_leap_steps",
        "_log",
        "_log_durations_s",
        "_log_n",
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
        self._arrivals: deque[tuple[float, Sequence]] = deque()
        self._aborts: list[Sequence] = []
        # The step in flight, and behind it those that are sure to follow.
        self._start_s = 0.0
        self._ends_s: list[float] = []
        self._durations_s: list[float] = []
        self._firsts: list[Sequence] = []
        self._log = step_log
        self._log_durations_s: list[float] = []
        self._log_n: list[int] = []

    # -- from outside ----------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """A request reaches the engine core now."""
        now = self.clock.now
        self._arrivals.append((now, sequence))
        ends = self._ends_s
        if not ends:
            if self._alarm is None:
                self._alarm = self.clock.at(now, SCHEDULE, self.component, self._wake)
        elif len(ends) > 1 and not self._indifferent():
            # The first schedule that can see it: of the step after the one that starts (async)
            # or ends (sync) at or after now.
            if not self.lag:
                last = bisect_left(ends, now)
            elif self._start_s >= now:
                last = 0
            else:
                last = bisect_left(ends, now) + 1
            self._cut(last)

    def abort(self, sequence: Sequence) -> None:
        """The client gave up; its place and blocks are free when the step in flight has ended."""
        if sequence.state == OUTSIDE and not self._seen_by_next_schedule(sequence):
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
            elif self._alarm is None:
                self._alarm = self.clock.at(
                    self.clock.now, SCHEDULE, self.component, self._wake
                )

    def num_requests_waiting(self) -> int:
        """vLLM's gauge, those included that the scheduler has not looked at yet."""
        return self.scheduler.n_waiting + len(self._arrivals)

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
        """The simulation ends here: account for what has been done by now."""
        done = self._leap_steps_started()
        if done and self._ends_s:
            self._account_leap(min(done, len(self._ends_s) - 1))
        if self._busy_since_s is not None:
            self.busy_s += self.clock.now - self._busy_since_s
            self._busy_since_s = None
        self._flush_log(0)

    # -- steps -----------------------------------------------------------------------------

    def _on_step_end(self, alarm: Alarm) -> None:
        if alarm is not self._alarm:
            return  # a leap was cut after this was set
        self.events += 1
        ends = self._ends_s
        scheduler = self.scheduler
        now = ends[-1]
        extra = len(ends) - 1
        if extra:
            scheduler.leap(extra)
            self._account_leap(extra)
            start = ends[-2]
        else:
            start = self._start_s
        batch = None
        if self.lag:
            if self._arrivals:
                self._take_arrivals(start)
            batch = scheduler.schedule()
            if scheduler.preempted or (batch is not None and batch.admitted):
                self._tell(batch, start, now)
        if self._aborts:
            self._do_aborts()
        if self._firsts:
            firsts, self._firsts = self._firsts, []
            for sequence in firsts:
                if sequence.state != GONE:
                    self.listener.first_token(sequence, now)
        for sequence in scheduler.update():
            self.listener.finished(sequence, now)
        if scheduler.pool.changes:
            self.listener.cache_changed()
        if batch is not None:
            self._begin(batch, now)
            return
        self._ends_s = []
        if self.lag or self.clock.peek() == now:
            # What happens at this very instant comes first: an arrival now is in this schedule.
            self._alarm = self.clock.at(now, SCHEDULE, self.component, self._wake)
        else:
            self._wake(alarm)

    def _wake(self, alarm: Alarm) -> None:
        """Nothing is in flight: schedule with all that is here, or fall idle."""
        if alarm is not self._alarm:
            return
        now = self.clock.now
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
            self._alarm = None
            if self._busy_since_s is not None:
                self.busy_s += now - self._busy_since_s
                self._busy_since_s = None
            return
        if self._busy_since_s is None:
            self._busy_since_s = now
        self._begin(batch, now)

    def _begin(self, batch: Batch, now: float) -> None:
        """The step starts now; find out how many plain ones are sure to follow."""
        duration = self.step_s(batch)
        end = now + duration
        self._start_s = now
        self._firsts = batch.firsts
        ends = self._ends_s = [end]
        self.steps += 1
        self.scheduled_tokens += batch.n_decodes + batch.prefill_tokens
        if self._log is not None:
            self._log_durations_s.append(duration)
            self._log_n.append(batch.n_decodes)
        if not batch.n_prefills and (not self._arrivals or self._indifferent()):
            steps = self.scheduler.leap_limit(self._leap_steps - 1)
            if steps > 0:
                self._extend(ends, steps)
        self._alarm = self.clock.at(ends[-1], STEP_END, self.component, self._on_step_end)

    def _extend(self, ends: list[float], steps: int) -> None:
        scheduler = self.scheduler
        n = scheduler.n_decodes
        kv = scheduler.context_tokens
        if steps < _FEW_STEPS:
            constant, per_token, host, residue = self.cost.decode_terms(n)
            durations = self._durations_s = []
            end = ends[0]
            for _ in range(steps):
                duration = constant + per_token * kv
                if duration < host:
                    duration = host
                duration += residue
                durations.append(duration)
                end += duration
                ends.append(end)
                kv += n
        else:
            run = self.cost.decode_run_s(n, kv, steps)
            self._durations_s = run.tolist()
            run[0] += ends[0]
            ends += np.add.accumulate(run).tolist()

    def step_s(self, batch: Batch) -> float:
        """Seconds of a step."""
        if batch.n_prefills == 0:
            return self.cost.decode_step_s(batch.n_decodes, batch.kv_tokens)
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

    def _seen_by_next_schedule(self, sequence: Sequence) -> bool:
        """Async: vLLM has scheduled the next step already, and this arrival was in time for it."""
        ends = self._ends_s
        if not self.lag or not ends:
            return False
        step = bisect_left(ends, self.clock.now)
        start_s = ends[step - 1] if step else self._start_s
        return any(s is sequence and t <= start_s for t, s in self._arrivals)

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

    def _account_leap(self, steps: int) -> None:
        n = self.scheduler.n_decodes
        self.steps += steps
        self.scheduled_tokens += steps * n
        if self._log is not None:
            self._log_durations_s += self._durations_s[:steps]
            self._log_n += [n] * steps
            if len(self._log_n) >= _LOG_STEPS:
                self._flush_log(_LOG_STEPS)

    def _flush_log(self, size: int) -> None:
        """Hand over chunks of exactly `size` steps (0: all that is left)."""
        if self._log is None:
            return
        while len(self._log_n) >= max(size, 1):
            n = size or len(self._log_n)
            self._log.steps(
                np.array(self._log_durations_s[:n]),
                np.array(self._log_n[:n]),
            )
            del self._log_durations_s[:n], self._log_n[:n]

    def _take_arrivals(self, until_s: float) -> None:
        arrivals = self._arrivals
        add = self.scheduler.add
        while arrivals and arrivals[0][0] <= until_s:
            sequence = arrivals.popleft()[1]
            if sequence.state == OUTSIDE:
                add(sequence)

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
