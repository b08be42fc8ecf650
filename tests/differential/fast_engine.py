"""fleetsim's engine behind the interface of the differential tests; leaps expanded to rows.

How an aborted request ended is for the fleet to say and not for its engine, so these recordings
have no records of such requests (`REPORTS_ABORTS`); that they are gone, and when, the rows show.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from differential.recording import Recording, RequestRecord, Row
from differential.workloads import (
    STEP_BASE_S,
    STEP_PER_CONTEXT_TOKEN_S,
    STEP_PER_TOKEN_S,
    RequestSpec,
    Workload,
    adapter_of,
    check,
    output_limit,
    outside_events,
    step_duration_s,
)

from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.engine.batch import Batch
from fleetsim.sim.engine.engine import Engine
from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.sim.engine.sequence import (
    DECODE,
    GONE,
    LAST_STEP_DONE,
    OUTSIDE,
    PREFILL,
    WAITING,
    Sequence,
)
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.step_cost import StepCost

REPORTS_ABORTS = False

_LIVE = (PREFILL, DECODE, LAST_STEP_DONE)


class RecordingScheduler(Scheduler):
    """Writes a row of every step, by looking at all sequences before and after it."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.rows: list[Row] = []
        self.to_update: list[Row] = []
        self.lost: list[str] = []

    def _computed(self) -> dict[Sequence, int]:
        return {
            s: self.step - s.offset if s.state == DECODE else s.computed
            for s in self.running
            if s.state in _LIVE
        }

    def _names(self, sequences: object) -> list[str]:
        return [s.owner for s in sequences if s.state in _LIVE]  # type: ignore[attr-defined]

    def queue(self) -> list[Sequence]:
        """Those that wait, in order."""
        if self.lora is not None:
            return self.lora.queue()
        waiting = [s for s in self.waiting if s.state == WAITING]
        return sorted(waiting) if self.by_priority else waiting

    def _row(self, scheduled: list[tuple[str, int, int]], free_before: int) -> Row:
        waiting = self.queue()
        row = Row(
            step=len(self.rows),
            t_sched=-1.0,
            t_start=-1.0,
            t_end=-1.0,
            scheduled=scheduled,
            admitted={},
            resumed={},
            preempted=self.lost,
            running=self._names(self.running),
            waiting=[s.owner for s in waiting],
            free_before=free_before,
            free_scheduled=self.pool.num_free_blocks,
        )
        self.lost = []
        self.rows.append(row)
        self.to_update.append(row)
        return row

    def schedule(self) -> Batch | None:
        free_before = self.pool.num_free_blocks
        before = self._computed()
        batch = super().schedule()
        self.lost += [s.owner for s in self.preempted]
        self.check()
        if batch is None:
            return None
        scheduled = []
        for sequence, computed in self._computed().items():
            start = sequence.hit_tokens if sequence in batch.admitted else before[sequence]
            if computed > start:
                scheduled.append((sequence.owner, computed - start, start))
        row = self._row(scheduled, free_before)
        for sequence in batch.admitted:
            into = row.resumed if sequence.preemptions else row.admitted
            into[sequence.owner] = sequence.hit_tokens
        assert batch.tokens == sum(n for _, n, _ in scheduled)
        prefill_kv_tokens = batch.prefill_kv_tokens if batch.n_prefills else 0
        assert batch.kv_tokens + prefill_kv_tokens == sum(c for _, _, c in scheduled)
        return batch

    def leap(self, steps: int) -> None:
        for _ in range(steps):
            if not self.lag:
                self.to_update.pop(0).free_updated = self.pool.num_free_blocks
            free_before = self.pool.num_free_blocks
            before = self._computed()
            super().leap(1)
            self.check()
            self._row(
                [(s.owner, 1, c) for s, c in before.items() if s.state == DECODE], free_before
            )
            if self.lag:
                self.to_update.pop(0).free_updated = self.pool.num_free_blocks

    def update(self) -> list[Sequence]:
        ended = super().update()
        if self.to_update:
            row = self.to_update.pop(0)
            row.finished = [s.owner for s in ended]
            row.free_updated = self.pool.num_free_blocks
        return ended

    def check(self) -> None:
        """Blocks are conserved, and the counts are those of a walk."""
        live = [s for s in self.running if s.state in _LIVE]
        assert len(live) == self.n_running == len(set(live))
        assert len(self.queue()) == self.n_waiting
        decodes = [s for s in live if s.state == DECODE]
        assert len(decodes) == self.n_decodes == sum(self.needs_block)
        assert sum(self.step - s.offset for s in decodes) == self.context_tokens
        assert [s for s in live if s.state == PREFILL] == self.partials
        if self.lora is not None:
            late = self.lora.until_the_end
            users = Counter(s.adapter for s in live if late or s.state != LAST_STEP_DONE)
            del users[""]
            assert users == self.lora.users
            assert len(users) <= self.lora.max_loras
        held: dict[int, int] = {}
        unhashed = 0
        for sequence, computed in self._computed().items():
            hashed = 0
            for top, lo in sequence.held:
                run = top
                while True:
                    held[id(run)] = run.hi - run.lo
                    hashed += run.hi - run.lo
                    if run.lo <= lo:
                        break
                    run = run.below  # type: ignore[assignment]
            unhashed += -(-computed // self.block_size) - hashed
        self.pool.check_integrity(sum(held.values()) + unhashed)


class _RecordingEngine(Engine):
    """Also notes when the steps ran, and can be told how long each one takes."""

    __slots__ = ("durations_s", "woken")

    scheduler: RecordingScheduler
    durations_s: list[float]
    woken: bool

    def _begin(self, batch: Batch, now: float) -> None:
        super()._begin(batch, now)
        rows = self.scheduler.rows
        row = rows[-1]
        if row.step < len(self.durations_s):
            # Of its alarms, an engine heeds the one that it set last.
            self._end_s = now + self.durations_s[row.step]
            self._alarm = self.clock.at(self._end_s, self._step_rank, self._on_step_end)
        row.t_start, row.t_end = now, self._end_s
        previous = rows[-2] if len(rows) > 1 else None
        row.t_sched = (
            previous.t_start if self.lag and not self.woken and previous is not None else now
        )
        self.woken = False

    def _wake(self, alarm: object) -> None:
        self.woken = True
        super()._wake(alarm)  # type: ignore[arg-type]

    def _account(self, leap: int) -> None:
        start, sched = self._end_s, self._start_s
        for k, row in enumerate(self.scheduler.rows[len(self.scheduler.rows) - leap :], 1):
            end = self._end_of(k)
            row.t_start, row.t_end = start, end
            row.t_sched = sched if self.lag else start
            # Arrivals that change nothing are not looked at in a leap, but they do wait.
            row.waiting += [
                s.owner for t, _, s in self._arrivals if t <= row.t_sched and s.state == OUTSIDE
            ]
            start, sched = end, start
        super()._account(leap)

    def step_s(self, batch: Batch) -> float:
        return step_duration_s(
            batch.n_decodes + batch.prefill_tokens, batch.kv_tokens + batch.prefill_kv_tokens
        )


class Listener:
    """Notes first tokens and ends, by the sequence's owner."""

    def __init__(self) -> None:
        self.first_token_s: dict[str, float] = {}
        self.end_s: dict[str, float] = {}

    def scheduled(self, sequence: Sequence, now_s: float) -> None:
        pass

    def preempted(self, sequence: Sequence, now_s: float, last_token_s: float) -> None:
        pass

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        self.first_token_s.setdefault(sequence.owner, now_s)

    def finished(self, sequence: Sequence, now_s: float) -> None:
        self.end_s[sequence.owner] = now_s

    def cache_changed(self) -> None:
        pass


def chain_of(request: RequestSpec, block_size: int) -> list[tuple[int, int]]:
    """Whole blocks by segment: a block belongs to the segment of its last token.

    The same segment under another LoRA adapter is another one.
    """
    by_adapter = adapter_of(request) << 40
    segments = list(request["chain"])
    if request["output_segment"] is not None:
        assert sum(tokens for _, tokens in segments) == request["prompt_tokens"]
        segments.append((request["output_segment"], request["output_tokens"]))
    chain, start = [], 0
    for segment, tokens in segments:
        blocks = (start + tokens) // block_size - start // block_size
        if blocks:
            chain.append((by_adapter + segment, blocks))
        start += tokens
    return chain


def run_each_step(workload: Workload) -> Recording:
    """Run the workload on fleetsim's engine, one event a step."""
    return run(workload, leaps=False)


def run(
    workload: Workload,
    leaps: bool = True,
    scheduler: type[RecordingScheduler] = RecordingScheduler,
    durations_s: list[float] | None = None,
    chains: list[list[tuple[int, int]]] | None = None,
) -> Recording:
    """Run the workload on fleetsim's engine.

    Args:
        workload: settings and requests.
        leaps: many steps in one event where that is exact.
        scheduler: the scheduler's class; another one is how faults are planted.
        durations_s: of the steps, in order, in place of `step_duration_s`. Without leaps only:
            a leap would have to know them all beforehand.
        chains: of the requests, where not `chain_of`.
    """
    check(workload)
    flags = dict(workload["engine"])
    flags["scheduling_policy"] = flags.pop("policy")
    settings = EngineSettings(**flags)  # type: ignore[arg-type]
    clock, listener = Clock(), Listener()
    cost = StepCost.linear(STEP_BASE_S, STEP_PER_TOKEN_S, STEP_PER_CONTEXT_TOKEN_S)
    engine = _RecordingEngine(clock, 0, settings, cost, listener, leaps=leaps)
    engine.woken = False
    engine.durations_s = durations_s or []
    engine.scheduler = scheduler(settings)
    sequences = []
    for number, request in enumerate(workload["requests"]):
        sequences.append(
            Sequence(
                number,
                request["arrival_s"],
                request["prompt_tokens"],
                request["output_tokens"],
                request["output_tokens"] == output_limit(workload["engine"], request),
                chain_of(request, settings.block_size) if chains is None else chains[number],
                request["priority"],
                owner=request["id"],
                adapter=str(adapter_of(request) or ""),
            )
        )

    def outside(kind: int, number: int, _: object) -> None:
        sequence = sequences[number]
        if kind == 0:
            engine.submit(sequence, clock.now)
        else:
            engine.abort(sequence)

    for order, (time_s, kind, number) in enumerate(outside_events(workload)):
        clock.at(time_s, rank(ARRIVAL, order), partial(outside, kind, number))
    clock.run()
    engine.close()
    assert all(s.state == GONE for s in sequences), "a request was lost"
    records = {}
    for request, sequence in zip(workload["requests"], sequences, strict=True):
        name = request["id"]
        if name in listener.end_s:
            records[name] = RequestRecord(
                listener.first_token_s.get(name),
                listener.end_s[name],
                sequence.generated,
                "stop" if request["stop"] == "eos" else "length",
                "",
            )
    return Recording(engine.scheduler.rows, records)
