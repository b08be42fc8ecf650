"""The workload format that every engine under test reads, and what in it is shared by all.

A workload is plain data (JSON-able): the engine's settings, under vLLM's flag names, and the
requests. Token identity, step durations and the order of outside events are defined here once,
so that two engines can differ only in their decisions.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

TICK_S = 2.0**-26
"""Every time in a recording is a whole number of ticks, so sums of them are exact in any order."""

STEP_BASE_S = 2.0**-8
STEP_PER_TOKEN_S = 2.0**-15
STEP_PER_CONTEXT_TOKEN_S = 2.0**-26

_UNIQUE_PROMPT = 1 << 44
_UNIQUE_OUTPUT = 1 << 45


class EngineSettings(TypedDict):
    """Settings of one engine under vLLM's names; block counts include vLLM's null block."""

    engine_version: str  # "0.32" or "0.33": which rules of preemption and of LoRA slots apply
    async_scheduling: bool
    policy: str  # "fcfs" or "priority"
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    num_gpu_blocks: int  # usable blocks = num_gpu_blocks - 1
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    long_prefill_token_threshold: int  # 0 = off
    watermark: float
    scheduler_reserve_full_isl: bool
    max_loras: NotRequired[int]  # absent: LoRA is off


class RequestSpec(TypedDict):
    """One request. Requests are listed in order of arrival; equal times enter in list order."""

    id: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int  # tokens it will really generate if nobody aborts it
    max_tokens: int
    stop: str  # "length": ended by max_tokens or max_model_len; "eos": by its last token
    priority: int  # smaller is served first (policy "priority" only)
    chain: list[tuple[int, int]]  # [segment id, tokens], whole segments, from the first token on
    output_segment: int | None  # segment id its output forms; None: output no prompt contains
    abort_s: float | None  # the client gives up at this time
    adapter: NotRequired[int]  # number of its LoRA adapter from 1 on; absent: none


class Workload(TypedDict):
    """Settings and requests, with the name and the features that counts are kept by."""

    name: str
    features: list[str]
    engine: EngineSettings
    requests: list[RequestSpec]


def step_duration_s(num_tokens: int, context_tokens: int) -> float:
    """Seconds of a step of `num_tokens` tokens over `context_tokens` of context.

    Context is counted before the step's own tokens, summed over all scheduled requests.
    The coefficients are powers of two: the result is exact whatever the order of operations.
    """
    return STEP_BASE_S + STEP_PER_TOKEN_S * num_tokens + STEP_PER_CONTEXT_TOKEN_S * context_tokens


def prompt_token_ids(index: int, request: RequestSpec) -> list[int]:
    """The prompt of the request at `index` of the list, as token ids that encode identity.

    Token j of a segment is the same token in whichever prompt the segment stands; tokens beyond
    the chain belong to this request alone.
    """
    tokens = [
        (segment << 20) + offset for segment, length in request["chain"] for offset in range(length)
    ]
    rest = request["prompt_tokens"] - len(tokens)
    if rest < 0:
        raise ValueError(f"request {request['id']}: its chain is longer than its prompt")
    tokens.extend(_UNIQUE_PROMPT + (index << 20) + offset for offset in range(rest))
    return tokens


def output_token_id(index: int, request: RequestSpec, position: int) -> int:
    """The token that the request at `index` generates as its output number `position`, from 0."""
    segment = request["output_segment"]
    if segment is None:
        return _UNIQUE_OUTPUT + (index << 20) + position
    return (segment << 20) + position


def outside_events(workload: Workload) -> list[tuple[float, int, int]]:
    """Arrivals and aborts in order of time, as (time, 0 arrival | 1 abort, request index)."""
    events = [(request["arrival_s"], 0, i) for i, request in enumerate(workload["requests"])]
    events += [
        (request["abort_s"], 1, i)
        for i, request in enumerate(workload["requests"])
        if request["abort_s"] is not None
    ]
    return sorted(events)


def output_limit(engine: EngineSettings, request: RequestSpec) -> int:
    """Most tokens the request may generate: max_tokens or what max_model_len leaves."""
    return min(request["max_tokens"], engine["max_model_len"] - request["prompt_tokens"])


def adapter_of(request: RequestSpec) -> int:
    """The number of its LoRA adapter, 0 for none."""
    return request.get("adapter", 0)


def check(workload: Workload) -> None:
    """Refuse a workload that vLLM would refuse, or that no engine could ever finish."""
    engine = workload["engine"]
    previous = (float("-inf"), -1)
    ids = set()
    for i, request in enumerate(workload["requests"]):
        where = f"{workload['name']}: request {request['id']}"
        if (request["arrival_s"], i) < previous:
            raise ValueError(f"{where} is out of order")
        previous = (request["arrival_s"], i)
        if request["id"] in ids:
            raise ValueError(f"{where} appears twice")
        ids.add(request["id"])
        limit = output_limit(engine, request)
        if request["prompt_tokens"] < 1 or not 1 <= request["output_tokens"] <= limit:
            raise ValueError(f"{where}: {request['output_tokens']} output tokens of {limit}")
        if request["stop"] == "length" and request["output_tokens"] != limit:
            raise ValueError(f"{where} cannot end by length before {limit} tokens")
        # the last token is never fed back, so it needs no slot
        slots = request["prompt_tokens"] + request["output_tokens"] - 1
        if slots > (engine["num_gpu_blocks"] - 1) * engine["block_size"]:
            raise ValueError(f"{where} can never fit")
        if request["abort_s"] is not None and request["abort_s"] < request["arrival_s"]:
            raise ValueError(f"{where} is aborted before it arrives")
        if adapter_of(request) and "max_loras" not in engine:
            raise ValueError(f"{where} names an adapter, and LoRA is off")
