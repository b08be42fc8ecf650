"""The reference engine: the reference scheduler on the engine core's clock."""

from __future__ import annotations

from collections import deque

from differential.recording import Recording, RequestRecord, Row
from differential.reference_scheduler import FINISHED, ReferenceScheduler, Sequence, Step
from differential.workloads import (
    Workload,
    adapter_of,
    check,
    output_token_id,
    outside_events,
    prompt_token_ids,
    step_duration_s,
)


class _Engine:
    """One run. Two loops, `_step_sync` and `_step_async`, on one clock."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.scheduler = ReferenceScheduler(workload["engine"])
        self.sequences: dict[int, Sequence] = {}  # by index in the workload, once arrived
        self.index: dict[str, int] = {r["id"]: i for i, r in enumerate(workload["requests"])}
        self.inbox = deque(outside_events(workload))
        self.aborts = deque(event for event in self.inbox if event[1] == 1)
        self.in_flight: deque[tuple[Step, Row | None, float]] = deque()  # with its end
        self.now_s = 0.0
        self.gpu_free_s = 0.0
        self.rows: list[Row] = []
        self.preempted: list[str] = []
        self.first_token_s: dict[str, float] = {}
        self.records: dict[str, RequestRecord] = {}

    def run(self) -> Recording:
        asynchronous = self.workload["engine"]["async_scheduling"]
        while self.inbox or self._has_work():
            if not self._has_work():
                self.now_s = max(self.now_s, self.inbox[0][0])
            self._read_inbox()
            if self._has_work():
                # from an idle pipe, two steps are scheduled before the first is waited for
                if self.scheduler.has_unfinished():
                    self._schedule()
                if (
                    not asynchronous
                    or len(self.in_flight) == 2
                    or not self.scheduler.has_unfinished()
                ):
                    self._wait_and_update()
        return Recording(self.rows, self.records)

    def _has_work(self) -> bool:
        return self.scheduler.has_unfinished() or bool(self.in_flight)

    def _read_inbox(self) -> None:
        while self.inbox and self.inbox[0][0] <= self.now_s:
            _, kind, index = self.inbox.popleft()
            if kind == 0:
                self._arrive(index)
            else:
                self._abort(index)

    def _arrive(self, index: int) -> None:
        spec = self.workload["requests"][index]
        eos = spec["stop"] == "eos"
        sequence = Sequence(
            id=spec["id"],
            arrival_s=spec["arrival_s"],
            priority=spec["priority"],
            prompt_tokens=spec["prompt_tokens"],
            max_tokens=spec["max_tokens"],
            stop_token=output_token_id(index, spec, spec["output_tokens"] - 1) if eos else None,
            tokens=prompt_token_ids(index, spec),
            adapter=adapter_of(spec),
        )
        self.sequences[index] = sequence
        self.scheduler.add(sequence)

    def _abort(self, index: int) -> None:
        sequence = self.sequences.get(index)
        if sequence is None or sequence.state is FINISHED:
            return
        state = sequence.state
        self.scheduler.abort(sequence)
        self._ended(sequence, state)

    def _schedule(self) -> None:
        free_before = self.scheduler.pool.free_blocks
        step = self.scheduler.schedule()
        self.preempted += [sequence.id for sequence in step.preempted]
        if not step.scheduled:
            self.in_flight.append((step, None, self.now_s))
            return
        duration_s = step_duration_s(sum(step.scheduled.values()), sum(step.context.values()))
        start_s = max(self.gpu_free_s, self.now_s)
        self.gpu_free_s = start_s + duration_s
        row = Row(
            step=len(self.rows),
            t_sched=self.now_s,
            t_start=start_s,
            t_end=self.gpu_free_s,
            scheduled=[(s.id, tokens, step.context[s]) for s, tokens in step.scheduled.items()],
            admitted={s.id: hit for s, hit in step.admitted.items()},
            resumed={s.id: hit for s, hit in step.resumed.items()},
            preempted=self.preempted,
            running=[s.id for s in self.scheduler.running],
            waiting=[s.id for s in self.scheduler.waiting()],
            free_before=free_before,
            free_scheduled=self.scheduler.pool.free_blocks,
        )
        self.preempted = []
        self.rows.append(row)
        self.in_flight.append((step, row, self.gpu_free_s))

    def _wait_and_update(self) -> None:
        step, row, end_s = self.in_flight.popleft()
        self.now_s = max(self.now_s, end_s)
        while self.aborts and self.aborts[0][0] < self.now_s:
            self._abort(self.aborts.popleft()[2])
        if row is None:
            return
        tokens = {}
        for sequence in step.scheduled:
            if step.samples[sequence] and sequence.state is not FINISHED:
                index = self.index[sequence.id]
                spec = self.workload["requests"][index]
                tokens[sequence] = output_token_id(index, spec, sequence.output_tokens)
                self.first_token_s.setdefault(sequence.id, self.now_s)
        for sequence in self.scheduler.update(step, tokens):
            row.finished.append(sequence.id)
            self._ended(sequence, "")
        row.free_updated = self.scheduler.pool.free_blocks

    def _ended(self, sequence: Sequence, aborted_from: str) -> None:
        self.records[sequence.id] = RequestRecord(
            first_token_s=self.first_token_s.get(sequence.id),
            end_s=self.now_s,
            tokens=sequence.output_tokens,
            reason=sequence.finish_reason,
            aborted_from=aborted_from,
        )


def run(workload: Workload) -> Recording:
    """Run the workload to its end on the reference engine."""
    check(workload)
    return _Engine(workload).run()
