"""Observes vLLM's scheduler from a subclass: what it decided in each step, as rows.

Used on the simulated clock (`real_vllm.py`) and in an engine that runs a model (`live_vllm.py`),
so that both record the same things in the same way. Nothing that the scheduler does is changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from differential.recording import RequestRecord, Row


class Notes:
    """What one run's scheduler has been seen to do; how time passes is for a subclass to say."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.preempted: list[str] = []  # since the last row
        self.unprocessed: deque[Row | None] = deque()  # not yet updated; None: an empty step
        self.first_token_s: dict[str, float] = {}
        self.tokens: dict[str, int] = {}
        self.records: dict[str, RequestRecord] = {}

    def now(self) -> float:
        """The time."""
        raise NotImplementedError

    def name(self, request_id: str) -> str:
        """The workload's name of a request."""
        return request_id

    def begun(self, row: Row) -> None:
        """A step was scheduled; tell when it runs, as far as that is known."""
        raise NotImplementedError

    def empty(self) -> None:
        """A step without tokens was scheduled."""

    def ended(self, request_id: str, reason: str, aborted_from: str) -> None:
        """A request is over."""
        self.records[request_id] = RequestRecord(
            first_token_s=self.first_token_s.get(request_id),
            end_s=self.now(),
            tokens=self.tokens.get(request_id, 0),
            reason=reason,
            aborted_from=aborted_from,
        )


class RecordingMixin:
    """Stands before vLLM's scheduler class; somebody gives it its `notes`."""

    notes: Notes

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        self.notes.preempted.append(self.notes.name(request.request_id))
        super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        notes = self.notes
        free_before = self._free_blocks_count()
        called_s = notes.now()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        if not output.num_scheduled_tokens:
            notes.unprocessed.append(None)
            notes.empty()
            return output
        requests: dict[str, Any] = self.requests  # type: ignore[attr-defined]
        scheduled = [
            (notes.name(request_id), tokens, requests[request_id].num_computed_tokens - tokens)
            for request_id, tokens in output.num_scheduled_tokens.items()
        ]
        resumed = self._names(output.scheduled_cached_reqs.resumed_req_ids)
        row = Row(
            step=len(notes.rows),
            t_sched=called_s,
            t_start=-1.0,
            t_end=-1.0,
            scheduled=scheduled,
            admitted={
                notes.name(new.req_id): new.num_computed_tokens for new in output.scheduled_new_reqs
            },
            resumed={name: context for name, _, context in scheduled if name in resumed},
            preempted=notes.preempted,
            running=self._names(r.request_id for r in self.running),  # type: ignore[attr-defined]
            waiting=self._names(r.request_id for r in self.waiting),  # type: ignore[attr-defined]
            free_before=free_before,
            free_scheduled=self._free_blocks_count(),
        )
        notes.begun(row)
        notes.preempted = []
        notes.rows.append(row)
        notes.unprocessed.append(row)
        return output

    def update_from_output(self, scheduler_output: Any, model_output: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, model_output)  # type: ignore[misc]
        notes = self.notes
        row = notes.unprocessed.popleft()
        for client in outputs.values():
            for output in client.outputs:
                name = notes.name(output.request_id)
                if output.new_token_ids:
                    notes.first_token_s.setdefault(name, notes.now())
                    notes.tokens[name] = notes.tokens.get(name, 0) + len(output.new_token_ids)
                if output.finish_reason is not None:
                    if row is None:
                        raise RuntimeError("a step without tokens finished a request")
                    row.finished.append(name)
                    notes.ended(name, str(output.finish_reason), "")
        if row is not None:
            row.free_updated = self._free_blocks_count()
        return outputs

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        notes = self.notes
        for request_id in (request_ids,) if isinstance(request_ids, str) else request_ids:
            request = self.requests.get(request_id)  # type: ignore[attr-defined]
            if request is not None:
                notes.ended(notes.name(request_id), "abort", request.status.name.lower())
        return super().finish_requests(request_ids, finished_status)  # type: ignore[misc]

    def _names(self, request_ids: Iterable[str]) -> list[str]:
        return [self.notes.name(request_id) for request_id in request_ids]

    def _free_blocks_count(self) -> int:
        return int(self.kv_cache_manager.block_pool.get_num_free_blocks())  # type: ignore[attr-defined]
