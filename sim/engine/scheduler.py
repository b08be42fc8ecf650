"""vLLM V1's scheduler, exactly, at a cost per step that does not grow with the batch.

Semantics: vLLM 0.32 `vllm/v1/core/sched/scheduler.py` and `async_scheduler.py`. Decoding
sequences are not walked. They are held as aggregates: how many, the sum of their context, the
steps at which each needs a block (by `offset` modulo the block size) and the steps at which each
ends (a heap). A plain step is then: count, look up one bucket, add.

That is exact because in vLLM, under FCFS without long_prefill_token_threshold, the running list
is all decodes in order of admission and then at most one partial prefill; decodes always fit the
token budget; and when the step's blocks are all free, their order does not matter. Where that
does not hold (a shortage of blocks, priority scheduling, a threshold), the sequences are walked
one by one as vLLM does (`running.py`), on the same state.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from fleetsim.sim.engine import running
from fleetsim.sim.engine.batch import Batch
from fleetsim.sim.engine.blocks import free, register_chain
from fleetsim.sim.engine.kv_cache import BlockPool
from fleetsim.sim.engine.lora import LoraSlots
from fleetsim.sim.engine.sequence import (
    DECODE,
    GONE,
    LAST_STEP_DONE,
    PREFILL,
    RUNNING,
    WAITING,
    Sequence,
)
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.waiting import admit


class Scheduler:
    """The scheduler and KV cache of one engine.

    `schedule` decides a step and allocates for it; `update` takes its result. In between, and
    only then, the engine may abort requests. Under async scheduling, step N + 1 is scheduled
    before step N is updated: call schedule, schedule, update, schedule, update, ...

    Attributes:
        step: number of the next step; counts steps that computed something.
        waiting: the queue; may hold dead sequences, `n_waiting` counts the live ones.
        running: in order of admission; may hold dead ones, `n_running` counts the live ones.
        n_decodes, context_tokens: sequences in DECODE, and the sum of their computed tokens as of
            now, before the next step is scheduled.
        decode_changes: counts changes of the set of decoding sequences.
        needs_block: of these, how many need a block in the steps whose number modulo the block
            size is the index.
        chained: decoding sequences of whose output the trace knows the content, and the segments
            that they fill.
        fills: of each segment, how many of them fill it; `shared_fills` segments more than one.
        partials: running sequences in PREFILL, in order of admission.
        head_blocked: none of the waiting requests could be admitted, and nothing has happened
            since that could change that.
        all_passed_over: all of them wait for a LoRA slot, as of when `head_blocked` was found; one
            that arrives may pass them.
        lora: the adapters that run, and in place of `waiting` the queue; None without `max_loras`.
        preempted: sequences preempted by the last `schedule`, in order.
        fruitless_preemptions: preemptions since a request last ended.
        preemptions, shortage_steps, stalled_steps: counts of what is rare: preemptions, steps
            walked for want of blocks, steps in which a decode got no token.
        prefix_queries_tokens, prefix_hits_tokens: vLLM's prefix_cache_queries and _hits, first
            admissions only.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.pool = BlockPool(settings.num_gpu_blocks, settings.enable_prefix_caching)
        self.block_size = settings.block_size
        self.lag = settings.async_scheduling
        self.by_priority = settings.scheduling_policy == "priority"
        self.walks = self.by_priority or settings.long_prefill_token_threshold > 0
        self.watermark_blocks = settings.watermark_blocks
        self.max_num_batched_tokens = settings.max_num_batched_tokens
        self.step = 0
        self.waiting: deque[Sequence] | list[Sequence] = [] if self.by_priority else deque()
        self.n_waiting = 0
        self.running: list[Sequence] = []
        self.n_running = 0
        self.n_decodes = 0
        self.context_tokens = 0
        self.needs_block = [0] * self.block_size
        self.decode_changes = 0
        self.finishes: list[tuple[int, int, Sequence]] = []
        self.partials: list[Sequence] = []
        self.chained: dict[Sequence, list[int]] = {}
        self.fills: dict[int, int] = {}
        self.shared_fills = 0
        self.ending: list[Sequence] = []
        self.head_blocked = False
        self.all_passed_over = False
        self.lora: LoraSlots | None = None
        if settings.max_loras is not None:
            until_the_end = settings.engine_version != "0.32"
            self.lora = LoraSlots(settings.max_loras, until_the_end, self.by_priority)
        self.preempted: list[Sequence] = []
        self.admissions = 0
        self.preemptions = 0
        self.fruitless_preemptions = 0
        self.shortage_steps = 0
        self.stalled_steps = 0
        self.prefix_queries_tokens = 0
        self.prefix_hits_tokens = 0

    # -- the queue -------------------------------------------------------------------------

    def add(self, sequence: Sequence) -> None:
        """A request arrives."""
        sequence.state = WAITING
        if self.lora is not None:
            self.lora.add(sequence)
        elif self.by_priority:
            heappush(self.waiting, sequence)  # type: ignore[arg-type]
        else:
            self.waiting.append(sequence)
        if self.by_priority or self.all_passed_over or self.n_waiting == 0:
            self.head_blocked = False
        self.n_waiting += 1

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request goes to the front (FCFS) or to its place (priority)."""
        if self.lora is not None:
            self.lora.put_back(sequence)
        elif self.by_priority:
            heappush(self.waiting, sequence)  # type: ignore[arg-type]
        else:
            self.waiting.appendleft(sequence)  # type: ignore[union-attr]
        self.n_waiting += 1

    def head(self) -> Sequence:
        """The first live waiting request; there is one."""
        while self.waiting[0].state != WAITING:
            self.pop_head()
        return self.waiting[0]

    def pop_head(self) -> None:
        """Take the first off the queue."""
        if self.by_priority:
            heappop(self.waiting)  # type: ignore[arg-type]
        else:
            self.waiting.popleft()  # type: ignore[union-attr]

    # -- a step ----------------------------------------------------------------------------

    def schedule(self) -> Batch | None:
        """Decide the next step, and allocate for it. None if there is nothing to compute."""
        step = self.step
        if self.lag and self.finishes and self.finishes[0][0] < step:
            self._collect_ending(step - 1)
        if self.preempted:
            self.preempted = []
        if self.walks:
            batch = Batch(step, 0, 0)
            budget = running.walk(self, batch)
        else:
            need = self.needs_block[step % self.block_size]
            if need:
                pool = self.pool
                if need <= pool.n_blank + pool.n_free_hashed:
                    pool.take(need)
                else:
                    running.walk_shortage(self)
            n_decodes = self.n_decodes
            batch = Batch(step, n_decodes, self.context_tokens)
            budget = self.max_num_batched_tokens - n_decodes
            if self.chained:
                self._register_outputs()
            if self.partials:
                budget = self._continue_partial(batch, budget)
        if self.n_waiting and not self.preempted and not self.head_blocked:
            admit(self, batch, budget)
        if batch.n_decodes == 0 and batch.n_prefills == 0:
            return None
        self.step = step + 1
        self.context_tokens += self.n_decodes
        for sequence in batch.firsts:
            self._start_decode(sequence, step)
        return batch

    def update(self) -> list[Sequence]:
        """Take the result of the oldest step not yet updated; free and return who ended.

        First tokens need no update here: they are `Batch.firsts` of that step.
        """
        if not self.lag:
            self._collect_ending(self.step - 1)
        ending = self.ending
        if not ending:
            return ending
        self.ending = []
        ended = []
        for sequence in ending:
            state = sequence.state
            if state == GONE:
                continue  # aborted meanwhile
            if state == WAITING:  # preempted with its last token under way
                self.n_waiting -= 1
            else:
                if state == DECODE:
                    self.leave_decode(sequence)
                self.leave_running(sequence, state)
                # The KV of the last token is never computed.
                registered = sequence.prompt_tokens + sequence.output_tokens - 1
                self.free(sequence, registered, for_good=True)
            sequence.state = GONE
            sequence.generated = sequence.output_tokens
            ended.append(sequence)
        if ended:
            self.head_blocked = False
            self.fruitless_preemptions = 0
            if len(self.running) > 2 * self.n_running + 16:
                self.compact()
        return ended

    def abort(self, sequence: Sequence) -> None:
        """The client is gone: free everything now. Call it between schedule and update."""
        state = sequence.state
        if state == WAITING:
            self.n_waiting -= 1
        elif state != GONE:
            if state == PREFILL:
                self.partials.remove(sequence)
                registered = sequence.computed
            else:
                if state == DECODE:
                    self.leave_decode(sequence)
                registered = self.confirmed(sequence)
            self.leave_running(sequence, state)
            self.free(sequence, registered, for_good=True)
        sequence.state = GONE
        self.head_blocked = False

    def leave_running(self, sequence: Sequence, state: int) -> None:
        """A sequence in this running state gives up its place, and the LoRA slot if it has one."""
        self.n_running -= 1
        lora = self.lora
        if lora is not None and (state != LAST_STEP_DONE or lora.until_the_end):
            lora.leave(sequence.adapter)

    # -- decode aggregates -----------------------------------------------------------------

    def _start_decode(self, sequence: Sequence, step: int) -> None:
        """Its prefill ends with this step, which makes its next token; then it decodes."""
        offset = step + 1 - sequence.target
        sequence.state = DECODE
        sequence.offset = offset
        finish_step = step + sequence.output_tokens - sequence.generated - 1
        sequence.finish_step = finish_step
        heappush(self.finishes, (finish_step, sequence.admission, sequence))
        self.needs_block[offset % self.block_size] += 1
        self.decode_changes += 1
        self.n_decodes += 1
        self.context_tokens += sequence.target
        if sequence.chain_blocks * self.block_size > sequence.target and self.pool.enable_caching:
            self._start_filling(sequence)

    def _start_filling(self, sequence: Sequence) -> None:
        size, target = self.block_size, sequence.target
        segments = []
        end = 0
        for segment, n_blocks in sequence.chain:
            end += n_blocks
            if end * size > target:
                segments.append(segment)
                count = self.fills[segment] = self.fills.get(segment, 0) + 1
                self.shared_fills += count == 2
        self.chained[sequence] = segments

    def _stop_filling(self, sequence: Sequence) -> None:
        fills = self.fills
        for segment in self.chained.pop(sequence):
            count = fills[segment] = fills[segment] - 1
            self.shared_fills -= count == 1
            if not count:
                del fills[segment]

    def leave_decode(self, sequence: Sequence) -> None:
        """Take a sequence out of the aggregates, and make its own counts exact."""
        computed = self.step - sequence.offset
        self.needs_block[sequence.offset % self.block_size] -= 1
        self.decode_changes += 1
        self.n_decodes -= 1
        self.context_tokens -= computed
        sequence.computed = computed
        sequence.generated = computed + 1 - sequence.prompt_tokens
        if sequence in self.chained:
            self._stop_filling(sequence)

    def _collect_ending(self, last_step: int) -> None:
        """Move those whose last token comes with `last_step` to `ending`.

        Async scheduling leaves a sequence that reaches its cap out of the next step, though it
        still holds its place and blocks; it cannot foresee a stop token, and lets it run on.
        """
        finishes = self.finishes
        while finishes and finishes[0][0] <= last_step:
            finish_step, admission, sequence = heappop(finishes)
            if (
                sequence.state != DECODE
                or sequence.finish_step != finish_step
                or sequence.admission != admission
            ):
                continue  # preempted, delayed or aborted since
            if self.lag and sequence.capped:
                self.leave_decode(sequence)
                sequence.state = LAST_STEP_DONE
                if not self.settings.enable_chunked_prefill:
                    self.head_blocked = False  # for one decode less leaves a larger budget
                lora = self.lora
                if lora is not None and sequence.adapter and not lora.until_the_end:
                    lora.leave(sequence.adapter)
                    self.head_blocked = False
            self.ending.append(sequence)

    def delay(self, sequence: Sequence) -> None:
        """A decode got no token in the step being scheduled: all its dates move by one."""
        self.needs_block[sequence.offset % self.block_size] -= 1
        self.decode_changes += 1
        sequence.offset += 1
        self.needs_block[sequence.offset % self.block_size] += 1
        self.context_tokens -= 1
        sequence.finish_step += 1
        heappush(self.finishes, (sequence.finish_step, sequence.admission, sequence))

    def next_finish(self) -> int:
        """Number of the step that makes some sequence's last token; far away if none does."""
        finishes = self.finishes
        while finishes:
            finish_step, admission, sequence = finishes[0]
            if (
                sequence.state == DECODE
                and sequence.finish_step == finish_step
                and sequence.admission == admission
            ):
                return finish_step
            heappop(finishes)
        return 1 << 62

    # -- leaps -----------------------------------------------------------------------------

    def leap_limit(self, most: int) -> int:
        """How many of the next steps are sure to be decodes of the present batch, at most `most`.

        The last of them may be one that ends a sequence. Zero if the very next step may differ.
        """
        if self.partials or self.walks or not self.n_decodes:
            return 0
        if self.n_waiting and not self.head_blocked:
            return 0
        if self.ending:
            return 0
        if self.chained and not self._may_register_late():
            return 0
        steps = self.next_finish() - self.step + 1
        if steps > most:
            steps = most
        pool = self.pool
        free = pool.n_blank
        if pool.changes is None:
            free += pool.n_free_hashed
        elif pool.changes:
            # Who listens to the cache's changes hears of an eviction at the end of its step.
            return 0
        if free < (steps // self.block_size + 1) * self.n_decodes:
            steps = self._steps_with_blocks(steps, free)
        return steps

    def _steps_with_blocks(self, most: int, free: int) -> int:
        size = self.block_size
        cycles = min(most // size, free // self.n_decodes)
        steps, free = cycles * size, free - cycles * self.n_decodes
        while steps < most:
            need = self.needs_block[(self.step + steps) % size]
            if need > free:
                break
            free -= need
            steps += 1
        return steps

    def leap(self, steps: int) -> None:
        """Schedule that many steps at once; leap(i) and leap(j) are leap(i + j)."""
        need = self.blocks_needed(steps)
        if need:
            self.pool.take(need)
        self.step += steps
        self.context_tokens += steps * self.n_decodes
        for sequence in self.chained:
            self._register_until(sequence, self.step - 1)

    def _may_register_late(self) -> bool:
        """Nobody will notice if the blocks of known outputs become findable at the leap's end.

        That is, nobody listens, nobody looks for them, and no two fill the same ones (of equal
        blocks, the one registered first is found).
        """
        return self.pool.changes is None and not self.shared_fills and not self._waited_for()

    def _waited_for(self) -> bool:
        """Whether the next to be admitted may hit what is being generated."""
        if not self.n_waiting:
            return False
        if self.lora is not None:
            return True
        fills = self.fills
        return any(segment in fills for segment, _ in self.head().chain)

    def blocks_needed(self, steps: int) -> int:
        """Blocks that the next steps allocate if they are decodes of the present batch."""
        size = self.block_size
        needs = self.needs_block
        first = self.step % size
        last = first + steps % size
        need = steps // size * self.n_decodes + sum(needs[first:last])
        return need if last <= size else need + sum(needs[: last - size])

    # -- prefill ---------------------------------------------------------------------------

    def _continue_partial(self, batch: Batch, budget: int) -> int:
        """The one partial prefill takes its next chunk, or preempts itself. Returns the budget."""
        sequence = self.partials[0]
        computed = sequence.computed
        chunk = sequence.target - computed
        if chunk > budget:
            chunk = budget
        if chunk <= 0:
            return budget
        size = self.block_size
        need = -(-(computed + chunk) // size) + -computed // size
        pool = self.pool
        if need > pool.n_blank + pool.n_free_hashed:
            # It is the last of running, and so its own victim.
            self.shortage_steps += 1
            running.pop_last(self)
            running.preempt(self, sequence)
            return budget
        self.take_chunk(batch, sequence, chunk, need)
        return budget - chunk

    def take_chunk(self, batch: Batch, sequence: Sequence, chunk: int, need: int) -> None:
        """Schedule a prefill chunk of a running sequence; `need` blocks are free for it."""
        self.pool.take(need)
        batch.add_prefill(chunk, sequence.computed)
        sequence.computed += chunk
        if sequence.chain_blocks > sequence.registered:
            register_chain(self.pool, self.block_size, sequence, sequence.computed)
        if sequence.computed == sequence.target:
            self.partials.remove(sequence)
            batch.firsts.append(sequence)

    # -- registered and free blocks --------------------------------------------------------

    def _register_outputs(self) -> None:
        """Decodes of outputs whose content the trace knows register their blocks as they fill.

        Before the prefill behind them does: of equal blocks, the one registered first is found.
        """
        for sequence in sorted(self.chained, key=lambda s: s.admission):
            self._register_until(sequence, self.step)
        if self._waited_for():
            self.head_blocked = False

    def register_output(self, sequence: Sequence) -> None:
        """One of `chained` has its place in the step being scheduled."""
        self._register_until(sequence, self.step)
        self.head_blocked = False

    def _register_until(self, sequence: Sequence, step: int) -> None:
        """A step schedules a token of an output that the trace knows.

        Under async scheduling that token is not known yet.
        """
        tokens = step - sequence.offset + (not self.lag)
        register_chain(self.pool, self.block_size, sequence, max(sequence.target, tokens))

    def confirmed(self, sequence: Sequence, known: bool = False) -> int:
        """Tokens with KV that vLLM has registered for a sequence that just left DECODE.

        `known`: its last step was scheduled when the token before had already come.

        Under async scheduling its last token is still under way and cannot be hashed yet.
        """
        if self.lag and not known:
            return max(sequence.target, sequence.computed - 1)
        return sequence.computed

    def free(self, sequence: Sequence, registered_tokens: int, for_good: bool = False) -> None:
        """Give all blocks of a sequence back; see `blocks.free`."""
        free(self.pool, self.block_size, sequence, registered_tokens, for_good)

    def compact(self) -> None:
        """Drop the dead from `running`."""
        self.running = [s for s in self.running if s.state in RUNNING]
