"""Runs a workload through the installed vLLM: its real engine core and scheduler, without a model.

`EngineCore.step` (sync) and `EngineCore.step_with_batch_queue` (async, queue of two) are called as
they stand. Only what surrounds them is replaced: the executor is a serial GPU on a simulated clock
whose outputs are the workload's own tokens, and the client's messages come from the workload. The
model configuration is a namespace with the few attributes that the scheduler reads, so neither a
model nor a GPU is needed.

Left out of the clock: the host's own time, among it the millisecond that the real loop sleeps
after a step that executed nothing. Aborts that reach the core within one step are applied in
order of time; the real core applies them as one set, in hash order.
"""

from __future__ import annotations

import queue
from collections import deque
from typing import Any

import differential.vllm_environment  # noqa: F401  before any import of vLLM
from differential.real_config import kv_cache_config, vllm_config
from differential.recording import Recording, Row
from differential.vllm_recorder import Notes, RecordingMixin
from differential.workloads import (
    EngineSettings,
    Workload,
    adapter_of,
    check,
    output_token_id,
    outside_events,
    prompt_token_ids,
    step_duration_s,
)
from vllm import __version__ as vllm_version
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

__all__ = ["bare_scheduler", "request", "run", "vllm_version"]

_MAX_EMPTY_STEPS = 1000


class _SimulatedNotes(Notes):
    """The notes of one run on the simulated clock, and the clock."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.workload = workload
        self.index = {request["id"]: i for i, request in enumerate(workload["requests"])}
        self.now_s = 0.0
        self.gpu_free_s = 0.0
        self.empty_steps = 0
        self.unsent_aborts = deque(
            (time_s, workload["requests"][i]["id"])
            for time_s, kind, i in outside_events(workload)
            if kind == 1
        )

    def now(self) -> float:
        return self.now_s

    def begun(self, row: Row) -> None:
        self.empty_steps = 0
        duration_s = step_duration_s(
            sum(tokens for _, tokens, _ in row.scheduled),
            sum(context for _, _, context in row.scheduled),
        )
        row.t_start = max(self.gpu_free_s, self.now_s)
        row.t_end = self.gpu_free_s = row.t_start + duration_s

    def empty(self) -> None:
        self.empty_steps += 1
        if self.empty_steps > _MAX_EMPTY_STEPS:
            raise RuntimeError(f"{self.workload['name']}: the engine makes no progress")


class _RecordingScheduler(RecordingMixin, Scheduler):  # type: ignore[misc]
    """vLLM's synchronous scheduler, observed."""


class _RecordingAsyncScheduler(RecordingMixin, AsyncScheduler):  # type: ignore[misc]
    """vLLM's asynchronous scheduler, observed."""


class _Pending:
    """The future of one step: waiting for it moves the clock to the step's end."""

    def __init__(self, core: _Core, output: Any, end_s: float) -> None:
        self._core = core
        self._output = output
        self._end_s = end_s
        # what each request really samples is fixed at schedule time: nothing for a partial prompt
        requests = core.scheduler.requests
        self._samples = {
            request_id: not requests[request_id].is_prefill_chunk
            for request_id in output.num_scheduled_tokens
        }

    def result(self) -> ModelRunnerOutput:
        core = self._core
        notes = core.notes
        notes.now_s = max(notes.now_s, self._end_s)
        while notes.unsent_aborts and notes.unsent_aborts[0][0] < notes.now_s:
            core.aborts_queue.put_nowait([notes.unsent_aborts.popleft()[1]])
        ids = list(self._samples)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
            sampled_token_ids=[self._token(request_id) for request_id in ids],
        )

    def _token(self, request_id: str) -> list[int]:
        request = self._core.scheduler.requests.get(request_id)
        if request is None or not self._samples[request_id]:
            return []
        index = self._core.notes.index[request_id]
        spec = self._core.notes.workload["requests"][index]
        return [output_token_id(index, spec, request.num_output_tokens)]


class _Executor:
    """A serial GPU: a step begins when the one before it has ended."""

    def __init__(self, core: _Core) -> None:
        self._core = core
        self._last: _Pending | None = None

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> _Pending:
        row = self._core.notes.unprocessed[-1]
        end_s = self._core.notes.now_s if row is None else row.t_end
        self._last = _Pending(self._core, scheduler_output, end_s)
        return self._last

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> _Pending:
        if self._last is None:
            raise RuntimeError("no step to sample from")
        return self._last


class _Core(EngineCore):  # type: ignore[misc]
    """vLLM's engine core with a simulated executor; step functions as they are."""

    def __init__(self, workload: Workload) -> None:
        engine = workload["engine"]
        self.notes = _SimulatedNotes(workload)
        self.vllm_config = vllm_config(engine)
        kind = _RecordingAsyncScheduler if engine["async_scheduling"] else _RecordingScheduler
        self.scheduler = _scheduler(kind, self.vllm_config, engine)
        self.scheduler.notes = self.notes
        self.log_stats = False
        self.is_mm_encoder_only = False
        self.is_pooling_model = False
        self.check_for_draft_tokens = False
        self.async_scheduling = engine["async_scheduling"]
        self.engines_running = False
        self._weight_version = None
        self.aborts_queue: queue.Queue[list[str]] = queue.Queue()
        self.model_executor = _Executor(self)
        self.batch_queue_size = self.vllm_config.max_concurrent_batches
        self.batch_queue: deque[Any] | None = deque(maxlen=2) if self.async_scheduling else None
        self.step_fn = self.step_with_batch_queue if self.async_scheduling else self.step

    def has_work(self) -> bool:
        return self.scheduler.has_requests() or bool(self.batch_queue)

    def abort_requests(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)


class _NoStructuredOutput:
    def accept_tokens(self, request: Any, tokens: Any) -> bool:
        return True

    def grammar_bitmask(self, *args: Any, **kwargs: Any) -> None:
        return None


def bare_scheduler(engine: EngineSettings) -> Any:
    """vLLM's scheduler as it is, for whoever drives it without the engine core."""
    init_none_hash(sha256)
    scheduler = AsyncScheduler if engine["async_scheduling"] else Scheduler
    return _scheduler(scheduler, vllm_config(engine), engine)


def _scheduler(kind: type, config: Any, engine: EngineSettings) -> Any:
    return kind(
        vllm_config=config,
        kv_cache_config=kv_cache_config(engine),
        structured_output_manager=_NoStructuredOutput(),
        block_size=engine["block_size"],
        hash_block_size=engine["block_size"],
        log_stats=False,
    )


def request(workload: Workload, index: int) -> Request:
    """The request at `index` of the list as vLLM's core gets it."""
    spec = workload["requests"][index]
    stop_token_ids = []
    if spec["stop"] == "eos":
        stop_token_ids = [output_token_id(index, spec, spec["output_tokens"] - 1)]
    block_hasher = None
    if workload["engine"]["enable_prefix_caching"]:
        block_hasher = get_request_block_hasher(workload["engine"]["block_size"], sha256)
    return Request(
        request_id=spec["id"],
        prompt_token_ids=prompt_token_ids(index, spec),
        sampling_params=SamplingParams(
            max_tokens=spec["max_tokens"], ignore_eos=True, stop_token_ids=stop_token_ids
        ),
        pooling_params=None,
        arrival_time=spec["arrival_s"],
        priority=spec["priority"],
        block_hasher=block_hasher,
        lora_request=_lora_request(adapter_of(spec)),
    )


def _lora_request(adapter: int) -> LoRARequest | None:
    """The scheduler reads its number, and the block hashes its name; nothing is loaded."""
    if not adapter:
        return None
    return LoRARequest(f"adapter {adapter}", adapter, f"nowhere/{adapter}")


def run(workload: Workload) -> Recording:
    """Run the workload to its end and return what the real engine did."""
    check(workload)
    init_none_hash(sha256)
    core = _Core(workload)
    inbox = deque(outside_events(workload))
    while inbox or core.has_work():
        if not core.has_work():
            core.notes.now_s = max(core.notes.now_s, inbox[0][0])
        while inbox and inbox[0][0] <= core.notes.now_s:
            _, kind, index = inbox.popleft()
            if kind == 0:
                core.add_request(request(workload, index))
            else:
                core.abort_requests([workload["requests"][index]["id"]])
        if core.has_work():
            core.step_fn()
    return Recording(core.notes.rows, core.notes.records)
