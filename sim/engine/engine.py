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
steps are one event, and so is a prefill step with the decodes behind it, but for an alarm that
tells of its first tokens. What cuts a leap short (an arrival, an abort) does so at the boundary at
which the step-by-step engine would have noticed it.
"""

from __future__ import annotations

from bisect import insort
from math import inf

from fleetsim.sim.clock import SCHEDULE, STEP_END, Clock, rank
from fleetsim.sim.engine.batch import Batch
from fleetsim.sim.engine.decode_run import DecodeRun
from fleetsim.sim.engine.listener import EngineListener
from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.sim.engine.sequence import DECODE, GONE, OUTSIDE, Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.sim.engine.step_log import StepLog
from fleetsim.sim.engine.validity import ValidityWatch

_NO_LIMIT = 1 << 30


class Engine:
    """One replica's engine.

    Args:
        clock: the simulation's clock.
        component: its number, which orders it among others at one instant.
        settings: as vLLM was started.
        cost: seconds of a step.
        listener: is told what happens to requests.
        log: takes the durations of steps, or None.
        watch: counts steps outside the profile's fit, or None where there can be none.
        leaps: many steps in one event where that is exact; off only to test that it is.

    Attributes:
        scheduled_tokens: in the steps that have begun, once closed.
        busy_s: time with a step in flight, up to when it last fell idle.
    """

    __slots__ = (
        "_aborts",
        "_alarm",
        "_arrivals",
        "_busy_since_s",
        "_due_s",
        "_end_s",
        "_first_alarm",
        "_firsts",
        "_in_flight",
        "_leap",
        "_log",
        "_most_leap",
        "_run",
        "_run_changes",
        "_run_done",
        "_run_ons",
        "_start_s",
        "_step_rank",
        "_wake_rank",
        "_watch",
        "busy_s",
        "clock",
        "cost",
        "events",
        "lag",
        "listener",
        "scheduled_tokens",
        "scheduler",
    )

    def __init__(
        self,
        clock: Clock,
        component: int,
        settings: EngineSettings,
        cost: StepCost,
        listener: EngineListener,
        log: StepLog | None = None,
        leaps: bool = True,
        watch: ValidityWatch | None = None,
    ) -> None:
        self.clock = clock
        self._step_rank = rank(STEP_END, component)
        self._wake_rank = rank(SCHEDULE, component)
        self.cost = cost
        self.listener = listener
        self.scheduler = Scheduler(settings)
        self.lag = settings.async_scheduling
        self.scheduled_tokens = 0
        self.busy_s = 0.0
        self.events = 0
        self._busy_since_s: float | None = None
        self._most_leap = _NO_LIMIT if leaps else 0
        self._alarm = -1  # the number of the alarm that counts; others are stale
        self._due_s = inf
        # By time of arrival, some of it still to come; of one instant, by request.
        self._arrivals: list[tuple[float, int, Sequence]] = []
        self._aborts: list[tuple[float, Sequence]] = []
        # In flight: the step that runs, from start to end, and behind it `_leap` steps that are
        # sure to follow. The latter are steps `_run_done`, `_run_done` + 1, ... of the run.
        self._in_flight = False
        self._start_s = 0.0
        self._end_s = 0.0
        self._leap = 0
        self._firsts: list[Sequence] = []
        self._first_alarm = -1
        self._run: DecodeRun | None = None
        self._run_changes = -1
        self._run_done = 0
        # Decodes of the step that starts now whose token nobody gets.
        self._run_ons = 0
        # Of the decode steps it has, the log takes a whole run at its end.
        self._log = log
        self._watch = watch

    # -- from outside ----------------------------------------------------------------------

    def submit(self, sequence: Sequence, arrival_s: float) -> None:
        """A request will reach the engine core at `arrival_s`, now or later."""
        arrivals = self._arrivals
        entry = (arrival_s, sequence.request_id, sequence)
        if arrivals and arrivals[-1] > entry:
            insort(arrivals, entry)
        else:
            arrivals.append(entry)
        if not self._in_flight:
            if arrival_s < self._due_s:
                self._wake_at(arrival_s)
        elif self._leap and not self._indifferent():
            self._cut(self._seen_after(arrival_s))

    def abort(self, sequence: Sequence) -> None:
        """The client gave up; its place and blocks are free when the step in flight has ended."""
        now = self.clock.now
        if sequence.state == OUTSIDE and not self._waits_in_vllm(sequence):
            sequence.state = GONE
        elif sequence.state != GONE:
            if self.lag and self._in_flight and self._start_s == now:
                # Between an update and the schedule that follows it: this one is in time for it.
                self._cut(0)
                self._abort_now(sequence)
                return
            self._aborts.append((now, sequence))
            if self._in_flight:
                self._cut(self._steps_ended_before(now))
            elif self._due_s > now:
                self._wake_at(now)

    @property
    def steps(self) -> int:
        """Steps that have begun."""
        return self.scheduler.step + self._leap_steps_started()

    def num_requests_waiting(self) -> int:
        """vLLM's gauge, those included that the scheduler has not looked at yet."""
        now = self.clock.now
        return self.scheduler.n_waiting + sum(
            t <= now and sequence.state == OUTSIDE for t, _, sequence in self._arrivals
        )

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
        """Context tokens of the sequences that decode now, their first token being out."""
        scheduler = self.scheduler
        tokens = scheduler.context_tokens
        if self._firsts and self._in_flight:
            return tokens - sum(
                sequence.target
                for sequence in self._firsts
                if sequence.state == DECODE and not sequence.generated
            )
        if not self._leap:
            return tokens
        if self.lag:
            started = self._leap_steps_started()
        else:
            # A step that could start at this instant is scheduled after all else that happens now.
            started = min(self._steps_ended_before(self.clock.now), self._leap)
        return tokens + started * scheduler.n_decodes

    def delivered_tokens(self, sequence: Sequence) -> int:
        """Output tokens of a sequence that are out by now."""
        if sequence.state != DECODE:
            return sequence.generated
        # Scheduled steps, less the one in flight.
        steps = self.scheduler.step + self._leap_steps_started() - self._in_flight
        return max(steps - sequence.offset + 1 - sequence.prompt_tokens, 0)

    def close(self) -> None:
        """The simulation ends here: account for the steps that have begun by now."""
        if self._in_flight:
            ended = self._steps_ended_by(self.clock.now)
            begun = min(ended, self._leap)
            self.scheduled_tokens += begun * self.scheduler.n_decodes
            self.scheduler.leap(begun)
            self._leap = 0
            if self._run is not None:
                # The running step may not be of the run, but of a batch of its own before it.
                self._run_done = max(self._run_done + ended - 1, 0)
        self._end_run()
        if self._busy_since_s is not None:
            self.busy_s += self.clock.now - self._busy_since_s
            self._busy_since_s = None
        if self._log is not None:
            self._log.flush()

    # -- steps -----------------------------------------------------------------------------

    def _on_step_end(self, alarm: int) -> None:
        if alarm != self._alarm:
            return  # a leap was cut after this was set
        self.events += 1
        scheduler = self.scheduler
        listener = self.listener
        now = self.clock.now
        leap = self._leap
        start_s = self._start_s
        if leap:
            # All of its steps have ended; the last one began when the one before it ended.
            scheduler.leap(leap)
            self._account(leap)
            start_s = self._run.end_s(self._run_done - 1)  # type: ignore[union-attr]
        batch = None
        if self.lag:
            if self._arrivals:
                self._take_arrivals(start_s)
            batch = scheduler.schedule()
            if scheduler.preempted or (batch is not None and batch.admitted):
                self._tell(batch, start_s, now)
        if self._aborts:
            # Sync: one at this very instant waits for the schedule, as if no leap had been cut.
            self._do_aborts(inf if self.lag else now)
        if self._firsts:
            self._tell_firsts(now)
        decoding = scheduler.n_decodes
        for sequence in scheduler.update():
            listener.finished(sequence, now)
        if scheduler.pool.changes:
            listener.cache_changed()
        if batch is not None:
            # Async: those that have just ended by a stop token are in the batch all the same.
            self._run_ons = decoding - scheduler.n_decodes
            self._begin(batch, now)
            return
        self._in_flight = False
        self._leap = 0
        if self.lag or self.clock.peek() == now:
            # What happens at this very instant comes first: an arrival now is in this schedule.
            self._wake_at(now)
        else:
            self._wake(alarm)

    def _wake_at(self, time_s: float) -> None:
        self._due_s = time_s
        self._alarm = self.clock.at(time_s, self._wake_rank, self._wake)

    def _wake(self, alarm: int) -> None:
        """Nothing is in flight: schedule with all that is here, or fall idle."""
        if alarm != self._alarm:
            return
        now = self.clock.now
        self._due_s = inf
        if self._arrivals:
            self._take_arrivals(now)
        if self._aborts:
            self._do_aborts(inf)
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
            self._end_run()
            if self._busy_since_s is not None:
                self.busy_s += now - self._busy_since_s
                self._busy_since_s = None
            if self._arrivals:
                self._wake_at(self._arrivals[0][0])
            return
        if self._busy_since_s is None:
            self._busy_since_s = now
        self._run_ons = 0
        self._begin(batch, now)

    def _begin(self, batch: Batch, now: float) -> None:
        """The step starts now; find out how many plain ones are sure to follow."""
        self._in_flight = True
        self._start_s = now
        self._firsts = batch.firsts
        self._leap = 0
        n = batch.n_decodes
        if batch.n_prefills == 0 and n == self.scheduler.n_decodes:
            self.scheduled_tokens += n
            run = self._run
            if run is None or self.scheduler.decode_changes != self._run_changes:
                run = self._begin_run(now, batch.kv_tokens)
            done = self._run_done = self._run_done + 1
            end = self._end_s = run.end_s(done)
        else:
            # A prefill, or, async, a decode that has run on past its stop token: a step by itself.
            if self._run is not None:
                self._end_run()
            tokens = n
            if batch.n_prefills:
                tokens += batch.prefill_tokens
                end = self._end_s = now + self.step_s(batch)
            else:
                end = self._end_s = now + self.cost.decode_step_s(n, batch.kv_tokens)
            self.scheduled_tokens += tokens
            if self._log is not None and n > self._run_ons:
                self._log.add_step(end - now, n - self._run_ons)
            if self._watch is not None:
                self._watch.step(n, batch.kv_tokens, tokens)
        most = self._most_leap
        if most:
            leap = self._find_leap(most)
            if leap > 0:
                if self._firsts:
                    self._first_alarm = self.clock.at(end, self._step_rank, self._on_first_tokens)
                end = self._run.end_s(self._run_done + leap)  # type: ignore[union-attr]
        self._alarm = self.clock.at(end, self._step_rank, self._on_step_end)

    def _find_leap(self, most: int) -> int:
        """How many steps of the running sequences alone are sure to follow the one that begins."""
        scheduler = self.scheduler
        arrivals = self._arrivals
        watch = bool(arrivals) and not self._indifferent()
        if watch and arrivals[0][0] <= (self._start_s if self.lag else self._end_s):
            return 0  # the very next schedule sees it
        leap = scheduler.leap_limit(most)
        if leap <= 0:
            return 0
        if self._run is None:
            self._begin_run(self._end_s, scheduler.context_tokens)
        self._leap = leap
        if watch:
            seen = self._seen_after(arrivals[0][0])
            if seen < leap:
                self._leap = leap = seen
        return leap

    def _on_first_tokens(self, alarm: int) -> None:
        """The first of the steps in flight ends; nothing else happens before the leap's end."""
        if alarm == self._first_alarm and self._leap:
            self._tell_firsts(self.clock.now)

    def _begin_run(self, start_s: float, kv_tokens: int) -> DecodeRun:
        """From now on the decoding sequences do nothing but decode."""
        if self._run is not None:
            self._end_run()
        scheduler = self.scheduler
        n = scheduler.n_decodes
        run = self._run = DecodeRun(start_s, n, kv_tokens, self.cost.decode_terms(n))
        self._run_changes = scheduler.decode_changes
        return run

    def _end_run(self) -> None:
        """All of its steps have ended, and the next one is not of it."""
        run = self._run
        if run is not None:
            if self._log is not None:
                self._log.add_run(run, self._run_done)
            if self._watch is not None:
                self._watch.run(run, self._run_done)
        self._run = None
        self._run_done = 0

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

    # -- the steps in flight ---------------------------------------------------------------

    def _end_of(self, step: int) -> float:
        """When a step in flight ends; 0 is the one that runs."""
        if step == 0 or self._run is None:
            return self._end_s
        return self._run.end_s(self._run_done + step)

    def _steps_ended_by(self, time_s: float) -> int:
        """How many of the steps in flight end at `time_s` or before."""
        if time_s < self._end_s:
            return 0
        if not self._leap or self._run is None:
            return 1
        ended = self._run.steps_by(time_s) - self._run_done
        return 1 + (ended if ended < self._leap else self._leap)

    def _steps_ended_before(self, time_s: float) -> int:
        """How many of the steps in flight end before `time_s`."""
        if time_s <= self._end_s:
            return 0
        if not self._leap or self._run is None:
            return 1
        ended = self._run.steps_before(time_s) - self._run_done
        return 1 + (ended if ended < self._leap else self._leap)

    def _leap_steps_started(self) -> int:
        """How many of the leap's steps have begun by now."""
        leap = self._leap
        now = self.clock.now
        if not leap or now < self._end_s:
            return 0
        started = self._run.steps_by(now) - self._run_done + 1  # type: ignore[union-attr]
        return started if started < leap else leap

    def _indifferent(self) -> bool:
        """Under FCFS, arrivals behind a head of line that cannot go in change nothing.

        Unless they may pass it, because all that wait do so for a LoRA slot.
        """
        scheduler = self.scheduler
        return (
            scheduler.head_blocked
            and scheduler.n_waiting > 0
            and not scheduler.by_priority
            and not scheduler.all_passed_over
        )

    def _waits_in_vllm(self, sequence: Sequence) -> bool:
        """Whether vLLM would have it in its queue by now, though we have not looked at it yet."""
        if not self._in_flight:
            return False
        ended = self._steps_ended_before(self.clock.now)
        start_s = self._end_of(ended - 1) if ended else self._start_s
        return any(s is sequence and t <= start_s for t, _, s in self._arrivals)

    def _seen_after(self, arrival_s: float) -> int:
        """The step in flight at whose end a schedule can first see an arrival.

        That is the first step that ends (sync) or starts (async) at or after it.
        """
        if not self.lag:
            return self._steps_ended_before(arrival_s)
        if self._start_s >= arrival_s:
            return 0
        return self._steps_ended_before(arrival_s) + 1

    def _cut(self, last: int) -> None:
        """End the leap with step `last` of those in flight."""
        if last < self._leap:
            self._leap = last
            self._alarm = self.clock.at(self._end_of(last), self._step_rank, self._on_step_end)

    def _account(self, leap: int) -> None:
        """Count the leap behind the step in flight: all of them have ended."""
        self.scheduled_tokens += leap * self.scheduler.n_decodes
        self._run_done += leap

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

    def _do_aborts(self, before_s: float) -> None:
        aborts = self._aborts
        self._aborts = [(time_s, sequence) for time_s, sequence in aborts if time_s >= before_s]
        for time_s, sequence in aborts:
            if time_s < before_s:
                self._abort_now(sequence)

    def _abort_now(self, sequence: Sequence) -> None:
        if sequence.state == OUTSIDE:
            # It has arrived, but the schedule that would have looked at it is still to come.
            sequence.state = GONE
        else:
            self.scheduler.abort(sequence)

    def _tell_firsts(self, now: float) -> None:
        for sequence in self._firsts:
            if sequence.state != GONE:
                self.listener.first_token(sequence, now)
        self._firsts = []

    def _tell(self, batch: Batch | None, now: float, last_token_s: float) -> None:
        for sequence in self.scheduler.preempted:
            self.listener.preempted(sequence, now, last_token_s)
        if batch is not None:
            for sequence in batch.admitted:
                self.listener.scheduled(sequence, now)
