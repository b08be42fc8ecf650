"""The rare parts of a step in which running sequences must be looked at one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetsim.sim.engine.blocks import register_chain
from fleetsim.sim.engine.sequence import DECODE, LAST_STEP_DONE, PREFILL, RUNNING, WAITING, Sequence

if TYPE_CHECKING:
    from fleetsim.sim.engine.batch import Batch
    from fleetsim.sim.engine.scheduler import Scheduler


# A hundred times what a crowded pool needs between two ends of requests.
_FRUITLESS_PREEMPTIONS = 100_000


class Livelock(Exception):
    """Running requests take each other's blocks for ever and none gets done, as in vLLM."""


def preempt(scheduler: Scheduler, victim: Sequence, scheduled_now: bool = False) -> None:
    """Take a sequence's place and blocks; it will recompute (`_preempt_request`).

    Args:
        scheduler: its state is that of the step being scheduled.
        victim: live; the caller has taken it out of the running list.
        scheduled_now: the step being scheduled had already given it a token (priority only).

    Raises:
        Livelock: this has gone on for ever.
    """
    if victim.state == PREFILL:
        scheduler.partials.remove(victim)
        registered = victim.computed
    else:
        if victim.state == DECODE:
            scheduler.leave_decode(victim)
            victim.computed += scheduled_now
        # Who got no token in the step before its last one had nothing in flight then.
        last_step = scheduler.step - 1 + scheduled_now
        registered = scheduler.confirmed(victim, victim.delayed_step >= last_step - 1)
    scheduler.free(victim, registered)
    scheduler.leave_running(victim, victim.state)
    victim.state = WAITING
    victim.computed = 0
    victim.preemptions += 1
    scheduler.preemptions += 1
    scheduler.fruitless_preemptions += 1
    if scheduler.fruitless_preemptions > _FRUITLESS_PREEMPTIONS:
        raise Livelock(f"{_FRUITLESS_PREEMPTIONS} preemptions since a request ended")
    scheduler.preempted.append(victim)
    scheduler.put_back(victim)
    scheduler.head_blocked = False


def walk_shortage(scheduler: Scheduler) -> None:
    """FCFS, and not enough free blocks for the decodes that need one in this step.

    In order of admission each takes a block; who finds none takes the place of the last running
    one, who may be itself.
    """
    scheduler.shortage_steps += 1
    pool = scheduler.pool
    step, size = scheduler.step, scheduler.block_size
    needy = [s for s in scheduler.running if s.state == DECODE and (step - s.offset) % size == 0]
    for sequence in needy:
        if sequence.state != DECODE:
            continue  # was a victim
        while pool.num_free_blocks == 0:
            victim = pop_last(scheduler)
            preempt(scheduler, victim)
            if victim is sequence:
                return  # nobody is left behind it
        pool.take(1)


def pop_last(scheduler: Scheduler) -> Sequence:
    """Take the last live sequence off the running list."""
    while True:
        sequence = scheduler.running.pop()
        if sequence.state in RUNNING:
            return sequence


def walk(scheduler: Scheduler, batch: Batch) -> int:
    """vLLM's loop over the running list as it stands: priority, or a prefill threshold.

    Returns:
        What is left of the token budget.
    """
    settings = scheduler.settings
    pool = scheduler.pool
    size = scheduler.block_size
    step = scheduler.step
    threshold = settings.long_prefill_token_threshold
    if scheduler.n_running + scheduler.n_waiting <= 1:
        threshold = 0
    budget = settings.max_num_batched_tokens
    scheduler.compact()
    line = scheduler.running
    chunks: dict[Sequence, int] = {}
    index = 0
    while index < len(line) and budget > 0:
        sequence = line[index]
        if sequence.state == LAST_STEP_DONE:
            index += 1
            continue
        if sequence.state == DECODE:
            computed, chunk = step - sequence.offset, 1
        else:
            computed = sequence.computed
            chunk = sequence.target - computed
            if 0 < threshold < chunk:
                chunk = threshold
            chunk = min(chunk, budget)
        need = -(-(computed + chunk) // size) + -computed // size
        placed = True
        while need > pool.num_free_blocks:
            if scheduler.by_priority:
                victim = max(line, key=lambda s: (s.priority, s.arrival_s))
                place = line.index(victim)
                del line[place]
                if place < index:
                    index -= 1
            else:
                victim = line.pop()
            given = chunks.pop(victim, 0)
            budget += given
            preempt(scheduler, victim, scheduled_now=given > 0)
            if victim is sequence:
                placed = False
                break
        if not placed:
            if scheduler.by_priority and settings.engine_version != "0.32":
                continue
            break
        chunks[sequence] = chunk
        budget -= chunk
        index += 1
        pool.take(need)
        if sequence.state == PREFILL:
            sequence.computed += chunk
            register_chain(pool, size, sequence, sequence.computed)
        elif sequence in scheduler.chained:
            scheduler.register_output(sequence)
    _shape(scheduler, batch, chunks)
    if chunks and batch.n_decodes < scheduler.n_decodes:
        _delay(scheduler, chunks)
    return budget


def _shape(scheduler: Scheduler, batch: Batch, chunks: dict[Sequence, int]) -> None:
    for sequence, chunk in chunks.items():
        if sequence.state == DECODE:
            batch.n_decodes += 1
            batch.kv_tokens += scheduler.step - sequence.offset
            continue
        batch.add_prefill(chunk, sequence.computed - chunk)
        if sequence.computed == sequence.target:
            scheduler.partials.remove(sequence)
            batch.firsts.append(sequence)


def _delay(scheduler: Scheduler, chunks: dict[Sequence, int]) -> None:
    """Decodes that got no token in this step do everything one step later."""
    scheduler.stalled_steps += 1
    for sequence in scheduler.running:
        if sequence.state == DECODE and sequence not in chunks:
            sequence.delayed_step = scheduler.step
            scheduler.delay(sequence)
