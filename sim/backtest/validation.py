"""Real closed-loop runs simulated again, with the engine and a profile of each set-up."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from fleetsim.calibration.from_aic import profile_from_aic
from fleetsim.calibration.parameters import HostWork
from fleetsim.calibration.profile import Profile
from fleetsim.calibration.silicon import SiliconRow
from fleetsim.sim.backtest.closed_loop import Lengths, replay_closed_loop
from fleetsim.sim.backtest.measured import Ints
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.randomness import Randomness
from fleetsim.traces.errors import InputError

SEED = 20240
REQUESTS_PER_SLOT = 10
SHORTEST = 0.8
"""Lengths are uniform from this share of the longest to the longest."""
GPU_MEMORY_UTILIZATION = 0.9
MAX_NUM_BATCHED_TOKENS = 8192

Setup = tuple[str, str, int]
"""Model, GPU and tensor-parallel size: what a profile belongs to."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run measured and simulated.

    Attributes:
        row: the run.
        fitted: host work was fitted to it; else it is held out.
        ttft_s, tpot_s: simulated means over requests.
        preemptions: in the simulated run.
    """

    row: SiliconRow
    fitted: bool
    ttft_s: float
    tpot_s: float
    preemptions: int

    @property
    def ttft_error(self) -> float:
        """Simulated over measured, less 1."""
        return self.ttft_s / self.row.ttft_s - 1.0

    @property
    def tpot_error(self) -> float:
        """Simulated over measured, less 1."""
        return self.tpot_s / self.row.tpot_s - 1.0

    @property
    def measured_tokens_per_s(self) -> float:
        """Output tokens a second; the file has none, so by Little's law from both times."""
        return _tokens_per_s(self.row, self.row.ttft_s, self.row.tpot_s)

    @property
    def tokens_per_s(self) -> float:
        """The same of the simulated times."""
        return _tokens_per_s(self.row, self.ttft_s, self.tpot_s)


@dataclass(frozen=True, slots=True)
class NotCovered:
    """A run that could not be simulated, and why."""

    row: SiliconRow
    reason: str


@dataclass(frozen=True, slots=True)
class Validation:
    """All runs, in the order of the file."""

    outcomes: tuple[Outcome, ...]
    not_covered: tuple[NotCovered, ...]


def _tokens_per_s(row: SiliconRow, ttft_s: float, tpot_s: float) -> float:
    tokens = (1.0 + SHORTEST) / 2.0 * row.output_tokens
    return row.concurrency * tokens / (ttft_s + (tokens - 1.0) * tpot_s)


def setup_of(row: SiliconRow) -> Setup:
    """What the row's profile belongs to."""
    return row.model.hf_id, row.gpu, row.tensor_parallel_size


def fit_setup(row: SiliconRow) -> Profile:
    """The profile of the row's model, GPU and size, fitted to the kernel tables.

    Raises:
        InputError: the tables do not cover it.
    """
    name = "-".join((row.model.name.lower().replace(" ", "-"), row.gpu))
    return profile_from_aic(
        row.model.hf_id,
        gpu=row.gpu,
        tensor_parallel_size=row.tensor_parallel_size,
        dtype=row.model.dtype,
        name=f"{name}-tp{row.tensor_parallel_size}",
    )


def engine_settings(row: SiliconRow, profile: Profile) -> EngineSettings:
    """The row's engine, as the benchmark started it.

    Raises:
        InputError: the weights leave no room for a KV cache, or not for one request.
    """
    flags = profile.engine_settings(
        gpu_memory_utilization=GPU_MEMORY_UTILIZATION,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        max_num_seqs=row.concurrency,
        kv_cache_dtype=row.kv_cache_dtype,
    )
    blocks = profile.kv_blocks(flags)
    longest = row.prompt_tokens + row.output_tokens
    room = (blocks - 1) * flags.block_size
    if longest > room:
        raise InputError(
            f"{profile.name}: the KV cache holds {room:,} tokens; one request has {longest:,}"
        )
    return EngineSettings(
        num_gpu_blocks=blocks,
        max_num_seqs=row.concurrency,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        max_model_len=longest,
        block_size=flags.block_size,
        enable_prefix_caching=False,
        async_scheduling=row.mode == "async",
    )


def is_kv_limited(row: SiliconRow, settings: EngineSettings) -> bool:
    """Whether the KV cache may be too small for all in flight: such rows are held out."""
    most_tokens = row.concurrency * (row.prompt_tokens + row.output_tokens)
    return most_tokens > settings.num_gpu_blocks * settings.block_size


def draw_lengths(row: SiliconRow) -> Lengths:
    """The row's requests; the same whenever and wherever they are drawn."""
    draws = Randomness(SEED).draws(f"validation/{row.row_id}")
    requests = REQUESTS_PER_SLOT * row.concurrency

    def lengths(longest: int, attempt: int) -> Ints:
        shortest = int(SHORTEST * longest)
        spread = longest - shortest + 1
        return np.array([shortest + draws.integer(spread, i, attempt) for i in range(requests)])

    return Lengths(lengths(row.prompt_tokens, 0), lengths(row.output_tokens, 1), at_client=True)


def simulate_row(row: SiliconRow, profile: Profile, host: HostWork | None = None) -> Outcome:
    """Run the row's requests through one simulated engine.

    Args:
        row: the run.
        profile: of its set-up.
        host: host work in place of the profile's, of which the row's version has a record.

    Raises:
        InputError: the set-up does not fit on the GPUs.
    """
    settings = engine_settings(row, profile)
    load = draw_lengths(row)
    if host is None:
        host = profile.host_work_for(row.mode, row.engine_version).work
    done = replay_closed_loop(load, row.concurrency, profile, settings, host)
    tpot_s = (done.e2e_s - done.ttft_s) / (load.output_tokens - 1)
    return Outcome(
        row=row,
        fitted=row.may_be_fitted and not is_kv_limited(row, settings),
        ttft_s=float(done.ttft_s.mean()),
        tpot_s=float(tpot_s.mean()),
        preemptions=done.preemptions,
    )


def _try_fit(row: SiliconRow) -> Profile | str:
    try:
        return fit_setup(row)
    except InputError as error:
        return str(error)


def _try_simulate(row: SiliconRow, profile: Profile) -> Outcome | NotCovered:
    try:
        return simulate_row(row, profile)
    except InputError as error:
        return NotCovered(row, str(error))


def validate(
    rows: Sequence[SiliconRow],
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> Validation:
    """Simulate all rows, in processes.

    The result does not depend on how many there are. Each set-up's profile is fitted once.

    Args:
        rows: to simulate.
        workers: processes.
        progress: told how many of how many pieces of work are done.
    """
    first_of = {setup_of(row): row for row in reversed(rows)}
    total = len(first_of) + len(rows)
    done = 0
    results: dict[str, Outcome | NotCovered] = {}
    # Fresh processes: the tables' library is native code with threads, which a fork may hang.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_try_fit, row): setup for setup, row in first_of.items()}
        simulations = []
        for fit in as_completed(waiting):
            profile, setup = fit.result(), waiting[fit]
            for row in rows:
                if setup_of(row) != setup:
                    continue
                if isinstance(profile, str):
                    results[row.row_id] = NotCovered(row, profile)
                else:
                    simulations.append(pool.submit(_try_simulate, row, profile))
            done += 1
            if progress is not None:
                progress(done, total)
        done += len(results)
        for simulation in as_completed(simulations):
            result = simulation.result()
            results[result.row.row_id] = result
            done += 1
            if progress is not None:
                progress(done, total)
    in_order = [results[row.row_id] for row in rows]
    return Validation(
        tuple(result for result in in_order if isinstance(result, Outcome)),
        tuple(result for result in in_order if isinstance(result, NotCovered)),
    )
