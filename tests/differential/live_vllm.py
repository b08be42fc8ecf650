"""Runs the installed vLLM with a model, in this process, and records what its scheduler did.

A Llama of random weights, small enough for a CPU core, written by us: nothing is downloaded. The
scheduler is observed from a subclass that the engine is told to use (`scheduler_cls`). Requests
reach it by the wall clock.

The CPU platform schedules synchronously: request, schedule, model, update, and again. What is
recorded is laid on a clock on which that cycle has no seams: a step lasts from its `schedule` to
the next one's, or to the end of its update where the engine fell idle. An arrival lies where it was
handed over; an abort, at the boundary behind the last step.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import differential.vllm_environment  # noqa: F401  before any import of vLLM
from differential.live_load import STOP_TOKENS, VOCABULARY, LiveRequest, Load
from differential.recording import Recording, RequestRecord, Row
from differential.vllm_recorder import Notes, RecordingMixin
from differential.workloads import TICK_S, EngineSettings, RequestSpec, Workload
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm import __version__ as vllm_version
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.scheduler import Scheduler

__all__ = ["LiveRun", "engine", "run", "vllm_version"]

_LAYERS, _HIDDEN, _HEADS, _KV_HEADS = 2, 512, 8, 4


@dataclass(slots=True)
class LiveRun:
    """A live run as a workload, with what vLLM did on it.

    Attributes:
        workload: the requests as they reached the engine, with the lengths they turned out to have.
        recording: vLLM's.
        due_s: when each request's client wanted it, which is earlier: the engine was busy.
        wall_s: how long the run took.
    """

    workload: Workload
    recording: Recording
    due_s: dict[str, float]
    wall_s: float


class _LiveNotes(Notes):
    """Notes by the wall clock."""

    def __init__(self) -> None:
        super().__init__()
        self.began_s = time.monotonic()
        self.names: dict[str, str] = {}  # vLLM adds a random suffix to the client's

    def now(self) -> float:
        return time.monotonic() - self.began_s

    def name(self, request_id: str) -> str:
        return self.names[request_id]

    def begun(self, row: Row) -> None:
        pass


class LiveScheduler(RecordingMixin, Scheduler):  # type: ignore[misc]
    """vLLM's synchronous scheduler, observed."""

    notes: _LiveNotes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notes = _LiveNotes()

    def update_from_output(self, scheduler_output: Any, model_output: Any) -> Any:
        row = self.notes.unprocessed[0]
        outputs = super().update_from_output(scheduler_output, model_output)
        if row is not None:
            row.t_end = self.notes.now()
        return outputs


@contextmanager
def engine(
    scheduler_cls: Any = LiveScheduler, stat_loggers: Any = None, **arguments: Any
) -> Iterator[Any]:
    """A live engine on the CPU, with vLLM's own arguments, and the scheduler to be watched.

    The KV block must be a multiple of 32 there.
    """
    with TemporaryDirectory() as folder:
        _write_model(Path(folder))
        live = LLMEngine.from_engine_args(
            EngineArgs(
                model=folder,
                load_format="dummy",
                skip_tokenizer_init=True,
                dtype="bfloat16",
                enforce_eager=True,
                scheduler_cls=scheduler_cls,
                **arguments,
            ),
            stat_loggers=stat_loggers,
        )
        try:
            yield live
        finally:
            live.engine_core.shutdown()


def _write_model(folder: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": _HIDDEN,
        "intermediate_size": _HIDDEN * 11 // 4,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HIDDEN // _HEADS,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))


@dataclass(slots=True)
class _Sent:
    """A request that has reached the engine."""

    request: LiveRequest
    due_s: float
    arrival_s: float
    rows_before: int  # steps scheduled before it came
    idle: bool  # nothing else was there
    abort_after_row: int | None = None


class _Client:
    """Hands the load's requests to the engine as they become due, and steps it."""

    def __init__(self, live: Any, load: Load) -> None:
        self._live = live
        self._load = load
        self.scheduler: LiveScheduler = live.engine_core.engine_core.scheduler
        self.notes = self.scheduler.notes
        self._due = [(r.due_s, i, r) for i, r in enumerate(load.requests)]
        self._number = len(self._due)  # for ties
        self.sent: dict[str, _Sent] = {}
        self.answers: dict[str, list[int]] = {}

    def run(self) -> None:
        """Until every request, the second turns included, is over."""
        self.notes.began_s = time.monotonic()
        busy = self._live.has_unfinished_requests
        while self._due or busy():
            idle = not busy()
            if idle:
                time.sleep(max(0.0, self._due[0][0] - self.notes.now()))
            while self._due and self._due[0][0] <= self.notes.now():
                due_s, _, request = heappop(self._due)
                self._send(request, due_s, idle)
                if idle:
                    break  # so that the step begins with its arrival; others are in the next one
            if not busy():
                continue
            for answer in self._live.step():
                if answer.finished:
                    self._answered(answer.request_id, list(answer.outputs[0].token_ids))
            self._give_up()

    def _send(self, request: LiveRequest, due_s: float, idle: bool) -> None:
        name = f"r{len(self.sent):04d}"
        arrival_s = _on_grid(self.notes.now())
        self.sent[name] = _Sent(request, due_s, arrival_s, len(self.notes.rows), idle)
        internal = self._live.add_request(
            name,
            {"prompt_token_ids": request.tokens},
            SamplingParams(
                max_tokens=request.max_tokens,
                ignore_eos=True,
                stop_token_ids=STOP_TOKENS if request.may_stop else None,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            ),
            arrival_time=arrival_s,
            priority=request.priority,
        )
        self.notes.names[internal] = name

    def _answered(self, name: str, answer: list[int]) -> None:
        self.answers[name] = answer
        first = self.sent[name].request
        turn = first.follow_up
        if turn is not None and first.output_segment is not None:
            turn.tokens = [*first.tokens, *answer, *turn.tokens]
            turn.chain = [*first.chain, (first.output_segment, len(answer)), *turn.chain]
            self._number += 1
            heappush(self._due, (self.notes.now() + turn.due_s, self._number, turn))

    def _give_up(self) -> None:
        """Clients leave who wanted no more than they have got."""
        for name, sent in self.sent.items():
            patience = sent.request.give_up_after
            if patience is None or sent.abort_after_row is not None or name in self.notes.records:
                continue
            if self.notes.tokens.get(name, 0) >= patience:
                sent.abort_after_row = len(self.notes.rows) - 1
                self._live.abort_request([name])


def run(live: Any, load: Load, name: str) -> LiveRun:
    """Run the load to its end."""
    client = _Client(live, load)
    client.run()
    notes = client.notes
    wall_s = notes.now()
    _lay_on_seamless_clock(client)
    rows = notes.rows
    requests: list[RequestSpec] = []
    first_token_s = _first_tokens(client)
    ends = {name: row.t_end for row in rows for name in row.finished}
    records = {}
    max_model_len = live.vllm_config.model_config.max_model_len
    for request_name, sent in client.sent.items():
        request, record = sent.request, notes.records[request_name]
        limit = min(request.max_tokens, max_model_len - len(request.tokens))
        aborted = sent.abort_after_row is not None
        abort_s = rows[sent.abort_after_row].t_end if sent.abort_after_row is not None else None
        requests.append(
            {
                "id": request_name,
                "arrival_s": sent.arrival_s,
                "prompt_tokens": len(request.tokens),
                "output_tokens": limit if aborted else record.tokens,
                "max_tokens": request.max_tokens,
                "stop": "eos" if record.reason == "stop" else "length",
                "priority": request.priority,
                "chain": request.chain,
                "output_segment": request.output_segment,
                "abort_s": abort_s,
            }
        )
        records[request_name] = RequestRecord(
            first_token_s.get(request_name),
            ends[request_name] if abort_s is None else abort_s,
            record.tokens,
            record.reason,
            record.aborted_from,
        )
    requests.sort(key=lambda r: r["arrival_s"])
    workload: Workload = {
        "name": name,
        "features": [],
        "engine": _settings(live.vllm_config),
        "requests": requests,
    }
    due_s = {name: sent.due_s for name, sent in client.sent.items()}
    return LiveRun(workload, Recording(rows, records), due_s, wall_s)


def _on_grid(time_s: float) -> float:
    return math.floor(time_s / TICK_S) * TICK_S


def _lay_on_seamless_clock(client: _Client) -> None:
    """Rows and arrivals on the clock that the module describes, in whole ticks."""
    rows = client.notes.rows
    after_idle = {sent.rows_before: sent for sent in client.sent.values() if sent.idle}
    for row in rows:
        row.t_sched = row.t_start = _on_grid(row.t_sched)
    for row in rows:
        following = row.step + 1
        if following < len(rows) and following not in after_idle:
            row.t_end = rows[following].t_sched
        else:
            row.t_end = _on_grid(row.t_end)
    for step, sent in after_idle.items():
        sent.arrival_s = rows[step].t_sched


def _first_tokens(client: _Client) -> dict[str, float]:
    """When each request's first token was out: its prompt was wholly computed."""
    found: dict[str, float] = {}
    for row in client.notes.rows:
        for name, tokens, context in row.scheduled:
            if context + tokens >= len(client.sent[name].request.tokens):
                found.setdefault(name, row.t_end)
    return found


def _settings(config: Any) -> EngineSettings:
    scheduler, cache = config.scheduler_config, config.cache_config
    return {
        "engine_version": ".".join(vllm_version.split(".")[:2]),
        "async_scheduling": bool(scheduler.async_scheduling),
        "policy": scheduler.policy,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_model_len": config.model_config.max_model_len,
        "block_size": cache.block_size,
        "num_gpu_blocks": cache.num_gpu_blocks,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
        "watermark": scheduler.watermark,
        "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
    }
