"""Counts of what runs contained, so that a fuzz run can show what it covered."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from differential.recording import Recording
from differential.workloads import RequestSpec, Workload


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
    for row, after in pairwise(recording.rows):
        if after.t_sched < row.t_end:
            in_flight = set(row.finished) & set(after.waiting)
            counts["ended by a token in flight when preempted"] += len(in_flight)
    for record in recording.requests.values():
        reason = f"abort while {record.aborted_from}" if record.aborted_from else record.reason
        counts[f"ended by {reason}"] += 1
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
