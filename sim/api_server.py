"""The API server in front of one engine: a queue of processes that parse, tokenise and stream."""

from __future__ import annotations

from typing import Protocol

from fleetsim.calibration.overheads import ApiServer as ApiServerCosts

MOST_STREAMING = 0.95
"""Share of a process that streamed chunks can take; beyond it the server is saturated."""


class Streams(Protocol):
    """What an API server must know of its engine."""

    def num_requests_running(self) -> int:
        """Requests that the engine runs now."""

    def decode_tokens(self) -> int:
        """Context tokens of those that decode now."""


class DecodeSeconds(Protocol):
    """Prices a step that only decodes."""

    def decode_step_s(self, n_decodes: int, kv_tokens: int) -> float:
        """Seconds of a step of so many decodes over so many computed tokens."""


class ApiServer:
    """First come, first served by whichever process is free first.

    A request occupies a process for a time that grows with its prompt, and then reaches the
    engine after a latency that occupies nobody. Chunks that stream out take their share of every
    process, in proportion to the tokens a second that the engine makes at that moment, so that
    what comes in takes longer. Chunks themselves are not delayed: a step's tokens leave when the
    step ends.

    Args:
        costs: of one request and one chunk.
        count: processes; vLLM's ``--api-server-count``.
        engine, cost: tell how many chunks a second stream out.

    Attributes:
        saturated: requests that came while chunks alone would have taken more than
            `MOST_STREAMING` of the processes; their time is a lower bound.
    """

    __slots__ = (
        "_chunk_s",
        "_cost",
        "_engine",
        "_free_s",
        "_latency_s",
        "_request_s",
        "_token_s",
        "saturated",
    )

    def __init__(
        self, costs: ApiServerCosts, count: int, engine: Streams, cost: DecodeSeconds
    ) -> None:
        self._latency_s = costs.latency_s
        self._request_s = costs.per_request_s
        self._token_s = costs.per_prompt_token_s
        self._chunk_s = costs.per_chunk_s / count
        self._engine = engine
        self._cost = cost
        self._free_s = [0.0] * count
        self.saturated = 0

    def take(self, now_s: float, prompt_tokens: int) -> float:
        """A request comes now; the time at which the engine has it."""
        work_s = self._request_s + self._token_s * prompt_tokens
        if self._chunk_s:
            work_s /= 1.0 - self._streaming()
        free_s = self._free_s
        process = free_s.index(min(free_s)) if len(free_s) > 1 else 0
        begins_s = free_s[process]
        if begins_s < now_s:
            begins_s = now_s
        free_s[process] = ends_s = begins_s + work_s
        return ends_s + self._latency_s

    def _streaming(self) -> float:
        """The share of each process that chunks take now."""
        running = self._engine.num_requests_running()
        if not running:
            return 0.0
        step_s = self._cost.decode_step_s(running, self._engine.decode_tokens())
        share = self._chunk_s * running / step_s
        if share > MOST_STREAMING:
            self.saturated += 1
            return MOST_STREAMING
        return share
