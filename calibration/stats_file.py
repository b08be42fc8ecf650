"""Reads stats files, as ``fleetsim.calibration.vllm_stat_logger`` writes them.

JSON lines. The first describes the engine (``Header``), with ``engine_index`` and
``api_processes``; each further one is an iteration as vLLM's frontend saw it: ``monotonic_s`` and
``wall_s`` (when it was noted); of the scheduler ``running``, ``waiting``, ``kv_usage`` and the
prompt tokens looked up and found in the prefix cache (``prefix_queries``, ``prefix_hits``); of the
outputs ``iteration_s`` (wall clock, from which vLLM counts latencies), ``prompt_tokens``,
``generation_tokens``, ``preempted``, how many first tokens and gaps there were and the seconds they
took together (``ttft_count``, ``ttft_sum_s``, ``itl_count``, ``itl_sum_s``), and the requests that
``finished``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fleetsim.calibration.recording import Header, read_recording

FORMAT = "fleetsim stats"
FORMAT_VERSION = 1
FILE_VARIABLE = "FLEETSIM_STATS_FILE"

_SUFFIX = ".stats.jsonl"

_Count = Annotated[int, Field(ge=0)]
_Time = Annotated[float, Field(allow_inf_nan=False)]
_Span = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class FinishedRequest(BaseModel):
    """A request at its end, with vLLM's figures.

    ``e2e_s`` counts at the frontend, from the request's arrival; the other times are the engine
    core's: in its queue, from the first schedule to the first token, from there to the last. Those
    of a request that was aborted mean nothing.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    request_id: str | None = None
    finish_reason: str
    prompt_tokens: _Count
    output_tokens: _Count
    cached_tokens: _Count = 0
    preemptions: _Count = 0
    e2e_s: _Time
    queued_s: _Time
    prefill_s: _Time
    decode_s: _Time


class _Iteration(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    monotonic_s: _Time
    wall_s: _Time
    iteration_s: _Time | None = None
    prompt_tokens: _Count = 0
    generation_tokens: _Count = 0
    ttft_count: _Count = 0
    ttft_sum_s: _Span = 0.0
    itl_count: _Count = 0
    itl_sum_s: _Span = 0.0
    finished: list[FinishedRequest] = []


@dataclass(frozen=True, slots=True)
class Stats:
    """A stats file.

    Attributes:
        header: the engine.
        finished: each request that ended, with the wall clock from which its ``e2e_s`` counts back.
        prompt_tokens, generation_tokens: of all iterations together.
        ttft_count, ttft_sum_s, itl_count, itl_sum_s: of all iterations together.
        api_processes: of which this file is one's.
    """

    header: Header
    finished: tuple[tuple[float, FinishedRequest], ...]
    prompt_tokens: int
    generation_tokens: int
    ttft_count: int
    ttft_sum_s: float
    itl_count: int
    itl_sum_s: float
    api_processes: int


def path_beside(steps: Path) -> Path:
    """Where the stats file belongs that is recorded together with this step file."""
    return steps.with_suffix(_SUFFIX)


def read_stats_file(path: Path) -> Stats:
    """Reads a stats file.

    Raises:
        InputError: see :func:`fleetsim.calibration.recording.read_recording`.
    """
    header, lines = read_recording(path, "stats", FORMAT, FORMAT_VERSION, _Iteration)
    return Stats(
        header=header,
        finished=tuple(
            (line.iteration_s if line.iteration_s is not None else line.wall_s, request)
            for line in lines
            for request in line.finished
        ),
        prompt_tokens=sum(line.prompt_tokens for line in lines),
        generation_tokens=sum(line.generation_tokens for line in lines),
        ttft_count=sum(line.ttft_count for line in lines),
        ttft_sum_s=sum(line.ttft_sum_s for line in lines),
        itl_count=sum(line.itl_count for line in lines),
        itl_sum_s=sum(line.itl_sum_s for line in lines),
        api_processes=int((header.model_extra or {}).get("api_processes", 1)),
    )
