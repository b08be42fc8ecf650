"""A request inside one engine: the state that the scheduler keeps of it."""

from __future__ import annotations

from typing import Any

from .kv_cache import Holding, Node

OUTSIDE = 5  # not yet seen by the scheduler
WAITING = 0  # in the queue, new or preempted
PREFILL = 1  # running, its prompt (or what it must recompute) not yet wholly scheduled
DECODE = 2  # running, one token a step
LAST_STEP_DONE = 3  # running, async scheduling knows that its last token is under way
GONE = 4  # finished or aborted

RUNNING = (PREFILL, DECODE, LAST_STEP_DONE)


class Sequence:
    """One attempt of a request on one replica.

    Attributes:
        request_id: decides ties of priority and arrival.
        prompt_tokens: tokens of the prompt.
        output_tokens: tokens it generates before it stops (at its stop token or at a cap).
        capped: whether the scheduler can tell beforehand which token is the last (max_tokens or
            max_model_len reached there); async scheduling then schedules no step too many.
        chain: (segment id, blocks) of shared prefix from the root; may go on into the output
            where the trace knows its content. The adapter is part of the content: the same tokens
            under two adapters are two segments.
        chain_blocks: blocks in chain.
        adapter: name of its LoRA adapter, "" for none.
        owner: what the caller hangs on it (a journey); the engine never looks.
        generated: output tokens known so far, exact whenever it is not in DECODE.
        computed: tokens whose KV is scheduled, exact whenever it is not in DECODE.
        target: tokens to be prefilled before it decodes: the prompt, or all so far if resumed.
        offset: in DECODE, computed = step - offset before that step is scheduled.
        delayed_step: the last step in which it was decoding and got no token.
        finish_step: in DECODE, number of the step that makes its last token.
        admission: counts admissions of the engine; the order of the running list.
        held, registered: blocks it holds that can be hit by others (and itself once preempted).
        hit_tokens: tokens found in the prefix cache at its last admission.
        preemptions: how often it lost its place.
        tail: node of its own blocks behind the chain.
    """

    __slots__ = (
        "adapter",
        "admission",
        "arrival_s",
        "capped",
        "chain",
        "chain_blocks",
        "computed",
        "delayed_step",
        "finish_step",
        "generated",
        "held",
        "hit_tokens",
        "offset",
        "output_tokens",
        "owner",
        "preemptions",
        "priority",
        "prompt_tokens",
        "registered",
        "request_id",
        "state",
        "tail",
        "target",
    )

    def __init__(
        self,
        request_id: int,
        arrival_s: float,
        prompt_tokens: int,
        output_tokens: int,
        capped: bool,
        chain: list[tuple[int, int]],
        priority: int = 0,
        owner: Any = None,
        adapter: str = "",
    ) -> None:
        self.request_id = request_id
        self.arrival_s = arrival_s
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.capped = capped
        self.chain = chain
        self.chain_blocks = sum(n for _, n in chain) if chain else 0
        self.priority = priority
        self.owner = owner
        self.adapter = adapter
        self.state = OUTSIDE
        self.generated = 0
        self.computed = 0
        self.hit_tokens = 0
        self.target = prompt_tokens
        self.offset = 0
        self.delayed_step = -3
        self.finish_step = -1
        self.admission = -1
        self.preemptions = 0
        self.held: list[Holding] = []
        self.registered = 0
        self.tail: Node | None = None

    def __hash__(self) -> int:
        return self.request_id

    def __lt__(self, other: Sequence) -> bool:
        """vLLM's order of the priority queue: (priority, arrival, request)."""
        return (self.priority, self.arrival_s, self.request_id) < (
            other.priority,
            other.arrival_s,
            other.request_id,
        )
