"""What a run of an engine is reduced to: one row per step that did something, one record a request.

Two recordings of the same workload are equal exactly when the two engines took the same decisions
at the same times. The compact form (whole-number ticks, request indices) is what golden files hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from differential.workloads import TICK_S, Workload


@dataclass(slots=True)
class Row:
    """One step in which tokens were scheduled, in the order in which steps were scheduled."""

    step: int
    t_sched: float  # schedule() was called
    t_start: float  # the GPU began
    t_end: float  # the GPU ended; the outputs are processed at this time
    scheduled: list[tuple[str, int, int]]  # (request, tokens, context before), in batch order
    admitted: dict[str, int]  # first admissions: prefix-hit tokens
    resumed: dict[str, int]  # re-admissions after a preemption: prefix-hit tokens
    preempted: list[str]  # since the previous row, in order of preemption
    running: list[str]  # after schedule(), in running order
    waiting: list[str]  # after schedule(), in the order in which they would be admitted
    free_before: int  # free blocks before schedule()
    free_scheduled: int  # free blocks after schedule()
    finished: list[str] = field(default_factory=list)  # by this step's outputs, in update order
    free_updated: int = -1  # free blocks after this step's outputs were processed


@dataclass(slots=True)
class RequestRecord:
    """How one request ended."""

    first_token_s: float | None  # None: aborted before its first token
    end_s: float  # its last token, or the time at which its abort took effect
    tokens: int
    reason: str  # "stop" | "length" | "abort"
    aborted_from: str  # "" | "waiting" | "running" | "preempted"


@dataclass(slots=True)
class Recording:
    """All rows and request records of one run."""

    rows: list[Row]
    requests: dict[str, RequestRecord]

    def without_aborts(self) -> Recording:
        """The same less the ends of aborted requests, for engines that leave them to others."""
        ended = {name: r for name, r in self.requests.items() if r.reason != "abort"}
        return Recording(self.rows, ended)


def _ticks(time_s: float) -> int:
    ticks = time_s / TICK_S
    if ticks != int(ticks):
        raise ValueError(f"{time_s!r} is not a whole number of ticks")
    return int(ticks)


def to_compact(recording: Recording, workload: Workload) -> dict[str, Any]:
    """The recording as small JSON: times in ticks, requests by their index in the workload."""
    number = {request["id"]: i for i, request in enumerate(workload["requests"])}
    rows = [
        [
            [_ticks(row.t_sched), _ticks(row.t_start), _ticks(row.t_end)],
            [[number[r], tokens, context] for r, tokens, context in row.scheduled],
            [[number[r], hit] for r, hit in row.admitted.items()],
            [[number[r], hit] for r, hit in row.resumed.items()],
            [number[r] for r in row.preempted],
            [number[r] for r in row.running],
            [number[r] for r in row.waiting],
            [number[r] for r in row.finished],
            [row.free_before, row.free_scheduled, row.free_updated],
        ]
        for row in recording.rows
    ]
    requests = [
        [
            None if record.first_token_s is None else _ticks(record.first_token_s),
            _ticks(record.end_s),
            record.tokens,
            record.reason,
            record.aborted_from,
        ]
        for record in (recording.requests[request["id"]] for request in workload["requests"])
    ]
    return {"rows": rows, "requests": requests}


def from_compact(compact: dict[str, Any], workload: Workload) -> Recording:
    """The inverse of `to_compact`."""
    name = [request["id"] for request in workload["requests"]]
    rows = [
        Row(
            step=step,
            t_sched=times[0] * TICK_S,
            t_start=times[1] * TICK_S,
            t_end=times[2] * TICK_S,
            scheduled=[(name[i], tokens, context) for i, tokens, context in scheduled],
            admitted={name[i]: hit for i, hit in admitted},
            resumed={name[i]: hit for i, hit in resumed},
            preempted=[name[i] for i in preempted],
            running=[name[i] for i in running],
            waiting=[name[i] for i in waiting],
            finished=[name[i] for i in finished],
            free_before=free[0],
            free_scheduled=free[1],
            free_updated=free[2],
        )
        for step, (
            times,
            scheduled,
            admitted,
            resumed,
            preempted,
            running,
            waiting,
            finished,
            free,
        ) in enumerate(compact["rows"])
    ]
    requests = {
        name[i]: RequestRecord(
            first_token_s=None if first is None else first * TICK_S,
            end_s=end * TICK_S,
            tokens=tokens,
            reason=reason,
            aborted_from=aborted_from,
        )
        for i, (first, end, tokens, reason, aborted_from) in enumerate(compact["requests"])
    }
    return Recording(rows, requests)
