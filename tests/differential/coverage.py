"""Counts of what runs contained, so that a fuzz run can show what it covered."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from differential.recording import Recording
from differential.workloads import RequestSpec, Workload, adapter_of

PASSED_OVER = "passed over for want of a LoRA slot"


def happened(workload: Workload, recording: Recording) -> Counter[str]:
    """What one run contained."""
    spec = {request["id"]: request for request in workload["requests"]}
    outputs = {
        request["output_segment"]: request
        for request in workload["requests"]
        if request["output_segment"] is not None
    }
    counts: Counter[str] = Counter({"steps": len(recording.rows)})
    for row in recording.rows:
        counts["preemptions"] += len(row.preempted)
        counts["resumptions"] += len(row.resumed)
        counts["hit tokens"] += sum(row.admitted.values())
        counts["hit tokens of resumed"] += sum(row.resumed.values())
        chains = []
        for request_id, hit in row.admitted.items():
            request = spec[request_id]
            counts["twin hits in one step"] += hit > 0 and request["chain"] in chains
            chains.append(request["chain"])
            said_by = _last_hit_speaker(request, hit, outputs)
            if said_by is not None:
                still = recording.requests[said_by["id"]].end_s > row.t_sched
                counts[f"hits on {'a running' if still else 'an ended'} request's output"] += 1
    counts.update(_lora_events(workload, recording))
    for row, after in pairwise(recording.rows):
        if after.t_sched < row.t_end:
            in_flight = set(row.finished) & set(after.waiting)
            counts["ended by a token in flight when preempted"] += len(in_flight)
    for record in recording.requests.values():
        reason = f"abort while {record.aborted_from}" if record.aborted_from else record.reason
        counts[f"ended by {reason}"] += 1
    return counts


def _lora_events(workload: Workload, recording: Recording) -> Counter[str]:
    """What the limit on adapters did; without one, nobody overtakes anybody."""
    limit = workload["engine"].get("max_loras")
    by_priority = workload["engine"]["policy"] == "priority"
    number = {request["id"]: i for i, request in enumerate(workload["requests"])}
    adapter = {request["id"]: adapter_of(request) for request in workload["requests"]}
    counts: Counter[str] = Counter()
    stood: dict[str, int] = {}  # where they stood in the queue after the step before
    for row in recording.rows:
        going = {**row.admitted, **row.resumed}

        def place(name: str, stood: dict[str, int] = stood) -> tuple[float, ...]:
            """Its rank in the queue from which this step admitted, the first to go first."""
            request = workload["requests"][number[name]]
            if by_priority:
                return request["priority"], request["arrival_s"], number[name]
            return stood.get(name, len(number)), number[name]

        if going:
            last = max(map(place, going))
            passed = sum(place(name) < last for name in row.waiting if name not in row.preempted)
            counts[PASSED_OVER] += passed
        stood = {name: i for i, name in enumerate(row.waiting)}
        if limit is not None:
            running = {adapter[name] for name in row.running} - {0}
            counts["steps with all LoRA slots taken"] += len(running) >= limit
            counts["steps with more adapters than slots"] += len(running) > limit
    return counts


def _last_hit_speaker(
    request: RequestSpec, hit: int, outputs: dict[int, RequestSpec]
) -> RequestSpec | None:
    """The request whose output the last hit token belongs to."""
    for segment, tokens in request["chain"]:
        if 0 < hit <= tokens:
            return outputs.get(segment)
        hit -= tokens
    return None
