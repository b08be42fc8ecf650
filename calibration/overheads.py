"""What a request and a step cost beside the GPU: host work, and the API server."""

import re

from fleetsim.calibration.parameters import HostWork, SchedulingMode
from fleetsim.calibration.section import Count, Seconds, Section


class HostWorkRecord(Section):
    """Host work of one scheduling mode, with the engine it was seen on."""

    mode: SchedulingMode
    engine_version: str
    """Such as ``vLLM 0.12.0``; a text without a number stands for any version."""
    work: HostWork
    source: str


class ApiServer(Section):
    """The API server in front of one engine: a queue of processes, and a delay beside it.

    A request waits for one of ``api_server_count`` processes (vLLM's option of that name), first
    come, first served. It occupies it for ``per_request_s + per_prompt_token_s * prompt_tokens``,
    and reaches the engine ``latency_s`` after that. Each streamed chunk (one token of one running
    request) occupies a process for ``per_chunk_s``, which leaves less of it for those that come.
    """

    api_server_count: Count
    latency_s: Seconds
    per_request_s: Seconds
    per_prompt_token_s: Seconds
    per_chunk_s: Seconds
    engine_version: str
    source: str


def host_work_for(
    records: tuple[HostWorkRecord, ...], mode: SchedulingMode, engine_version: str | None
) -> HostWorkRecord:
    """The record of a mode that is nearest to an engine version.

    That is the newest one not newer than the engine, or else the oldest. Without an engine
    version it is the newest.

    Raises:
        StopIteration: there is none of this mode; profiles have one of each.
    """
    of_mode = sorted((r for r in records if r.mode == mode), key=lambda r: _key(r.engine_version))
    if engine_version is None:
        return of_mode[-1]
    wanted = _key(engine_version)
    not_newer = [record for record in of_mode if _key(record.engine_version) <= wanted]
    return not_newer[-1] if not_newer else next(iter(of_mode))


def _key(engine_version: str) -> tuple[int, ...]:
    """The version's numbers, which order ``0.9`` before ``0.10``; empty where there are none."""
    found = re.search(r"\d+(\.\d+)*", engine_version)
    return tuple(map(int, found.group().split("."))) if found else ()
