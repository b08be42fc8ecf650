"""A request is what a client asked; a journey is what happened to it."""

from __future__ import annotations

from math import nan

COMPLETED = "completed"
REJECTED = "rejected"
FAILED = "failed"
CANCELLED = "cancelled"
UNFINISHED = "unfinished"
OUTCOMES = (COMPLETED, REJECTED, FAILED, CANCELLED, UNFINISHED)


class Request:
    """What a client asked, and all that a policy may know of it. Treat it as read-only.

    The true output length is not here: it belongs to the workload, and no policy sees it.

    Attributes:
        request_id: position in the trace after its stable sort by arrival.
        arrival_s: when the client sends its first attempt, in seconds of simulated time.
        prompt_tokens: tokens of the prompt.
        max_tokens: the output cap that the client asked for (or the scenario's rule gave).
        tenant, model: names; "" where the trace has none.
        session: the session's name, or None.
        priority: vLLM's request priority, lower first.
        slo_class: name of the SLO class, or None.
        adapter: name of the LoRA adapter, "" for none.
        prefix: ids of the segments of shared prompt prefix, from the root (see
            `fleetsim.traces.prefix_tree`); () where nothing is known to be shared.
        source_row: row in the file that the request came from.
        attempt: 0 for the client's first try, then one more for each retry.
    """

    __slots__ = (
        "adapter",
        "arrival_s",
        "attempt",
        "max_tokens",
        "model",
        "prefix",
        "priority",
        "prompt_tokens",
        "request_id",
        "session",
        "slo_class",
        "source_row",
        "tenant",
    )

    def __init__(
        self,
        request_id: int,
        arrival_s: float,
        prompt_tokens: int,
        max_tokens: int,
        tenant: str = "",
        model: str = "",
        session: str | None = None,
        priority: int = 0,
        slo_class: str | None = None,
        prefix: tuple[int, ...] = (),
        source_row: int = 0,
        adapter: str = "",
    ) -> None:
        self.request_id = request_id
        self.arrival_s = arrival_s
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.tenant = tenant
        self.model = model
        self.session = session
        self.priority = priority
        self.slo_class = slo_class
        self.prefix = prefix
        self.source_row = source_row
        self.adapter = adapter
        self.attempt = 0


class Journey:
    """What happened to a request. All times are seconds of simulated time; NaN where unknown.

    The phases of a completed request sum to `ended_s - client_sent_s`:

    ==============  ====================================================
    network in      ``arrived_s - client_sent_s``
    gateway         ``dispatched_s - arrived_s``
    api             ``queued_s - dispatched_s`` (the engine's API server)
    queue           ``scheduled_s - queued_s``
    prefill         ``first_token_s - scheduled_s - prefill_stall_s``
    decode          ``last_token_s - first_token_s - decode_stall_s``
    stall           ``prefill_stall_s + decode_stall_s`` (preempted, waiting to resume)
    network out     ``ended_s - last_token_s``
    ==============  ====================================================

    Attributes:
        request: what the client asked.
        output_tokens: tokens that the engine will generate if nothing cuts it short.
        capped: whether they are as many as max_tokens and the context length allow, so that the
            engine knows the last one beforehand.
        stops_at_length: whether it ends because it reached that cap (vLLM's finish reason
            "length") and not by its own stop token ("stop").
        output_segments: segments that its output fills, behind the request's prefix, where the
            trace tells, because a later prompt goes on there.
        outcome: one of `OUTCOMES`, or "" while it is under way; reason says why.
        replica: number of the replica that served it, -1 if none did.
        cached_tokens: prompt tokens found in the prefix cache when it was first scheduled.
    """

    __slots__ = (
        "admitted_s",
        "arrived_s",
        "attempts",
        "cached_tokens",
        "capped",
        "client_first_token_s",
        "client_sent_s",
        "decode_stall_s",
        "delivered_tokens",
        "dispatched_s",
        "ended_s",
        "finish_reason",
        "first_token_s",
        "last_token_s",
        "outcome",
        "output_segments",
        "output_tokens",
        "pool",
        "preemptions",
        "prefill_stall_s",
        "queued_s",
        "reason",
        "replica",
        "request",
        "scheduled_s",
        "stops_at_length",
    )

    def __init__(
        self, request: Request, output_tokens: int, capped: bool, stops_at_length: bool
    ) -> None:
        self.request = request
        self.output_tokens = output_tokens
        self.capped = capped
        self.stops_at_length = stops_at_length
        self.output_segments: tuple[int, ...] = ()
        self.client_sent_s = request.arrival_s
        self.arrived_s = nan
        self.admitted_s = nan
        self.dispatched_s = nan
        self.queued_s = nan
        self.scheduled_s = nan
        self.first_token_s = nan
        self.last_token_s = nan
        self.client_first_token_s = nan
        self.ended_s = nan
        self.pool = ""
        self.replica = -1
        self.attempts = 0
        self.outcome = ""
        self.reason = ""
        self.finish_reason = ""
        self.delivered_tokens = 0
        self.cached_tokens = 0
        self.preemptions = 0
        self.prefill_stall_s = 0.0
        self.decode_stall_s = 0.0
