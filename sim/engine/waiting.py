"""The second half of a step: requests that wait are admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetsim.sim.engine.batch import Batch
from fleetsim.sim.engine.blocks import register_chain
from fleetsim.sim.engine.kv_cache import Holding
from fleetsim.sim.engine.sequence import PREFILL

if TYPE_CHECKING:
    from fleetsim.sim.engine.scheduler import Scheduler


def admit(scheduler: Scheduler, batch: Batch, budget: int) -> None:
    """Admit waiting requests, head of line first, while budget, places and blocks last.

    Nobody overtakes, but whoever waits for a LoRA slot is passed over.
    """
    settings = scheduler.settings
    pool = scheduler.pool
    size = scheduler.block_size
    threshold = settings.long_prefill_token_threshold
    if threshold and scheduler.n_running + scheduler.n_waiting <= 1:
        threshold = 0
    max_num_seqs = settings.max_num_seqs
    lora = scheduler.lora
    all_passed_over = False
    while budget > 0 and scheduler.n_waiting and scheduler.n_running < max_num_seqs:
        if lora is None:
            sequence = scheduler.head()
        else:
            first = lora.head()
            if first is None:
                all_passed_over = True
                break
            sequence = first
        target = sequence.prompt_tokens + sequence.generated
        pieces: list[Holding] = []
        hits = idle_hits = 0
        if pool.enable_caching and (sequence.chain or sequence.tail is not None):
            pieces = pool.match(sequence.chain, sequence.tail, (target - 1) // size)
            for run, lo in pieces:
                hits += run.hi - lo
                if run.ref == 0:
                    idle_hits += run.hi - lo
        computed = hits * size
        chunk = target - computed
        if 0 < threshold < chunk:
            chunk = threshold
        if chunk > budget:
            if not settings.enable_chunked_prefill:
                break
            chunk = budget
        # Cached blocks that nobody holds count as free, so hitting them uses free blocks up.
        taken = idle_hits - hits + (scheduler.watermark_blocks if scheduler.n_running else 0)
        free = pool.n_blank + pool.n_free_hashed
        end = -(-(computed + chunk) // size)
        if (-(-target // size) if settings.scheduler_reserve_full_isl else end) + taken > free:
            break
        if pieces:
            pool.touch(pieces)
        pool.take(end - hits)
        if lora is None:
            scheduler.pop_head()
        else:
            lora.pop(sequence)
            lora.take(sequence.adapter)
        scheduler.n_waiting -= 1
        scheduler.n_running += 1
        scheduler.running.append(sequence)
        scheduler.admissions += 1
        sequence.admission = scheduler.admissions
        sequence.held = pieces
        sequence.registered = hits
        sequence.target = target
        sequence.computed = computed + chunk
        sequence.hit_tokens = computed
        if sequence.preemptions == 0:
            scheduler.prefix_queries_tokens += target
            scheduler.prefix_hits_tokens += computed
        if sequence.chain_blocks > hits and pool.enable_caching:
            register_chain(pool, size, sequence, sequence.computed)
        batch.add_prefill(chunk, computed)
        batch.admitted.append(sequence)
        budget -= chunk
        if sequence.computed == target:
            batch.firsts.append(sequence)
        else:
            scheduler.partials.append(sequence)
        sequence.state = PREFILL
    # Who comes behind those that wait for a LoRA slot may still go in.
    scheduler.all_passed_over = all_passed_over
    # Whoever is first now could not go in; until something is freed, nothing can change that
    # (except the budget, which only a prefill of this very step can have used up).
    scheduler.head_blocked = scheduler.n_waiting > 0 and not batch.n_prefills
