"""A measured run from what vLLM's frontend noted: the stats file of ``fleetsim calibrate record``.

vLLM counts a request's end-to-end time back from the iteration in which it ended, so its arrival
is that iteration's wall clock less that time. Its first token came as much before its last as the
engine core says its decoding took. Tokenising lies before the arrival, and the way to the client
behind the last token: neither is part of these times.
"""

from pathlib import Path

import numpy as np

from fleetsim.calibration.recording import Header
from fleetsim.calibration.stats_file import Stats, read_stats_file
from fleetsim.sim.backtest.measured_run import MeasuredRun, Origin, checked_run
from fleetsim.traces.errors import InputError

_FAILED = ("abort", "error")
_SETTINGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "block_size",
    "num_gpu_blocks",
    "enable_prefix_caching",
)
_SMALL_SHARE = 0.01


def read_stats_run(path: Path) -> MeasuredRun:
    """The requests that ended well while the recording ran.

    Raises:
        InputError: see :func:`fleetsim.calibration.stats_file.read_stats_file`; or no request
            ended well, a time is impossible, or another API server process had a part of them.
    """
    stats = read_stats_file(path)
    if stats.api_processes > 1:
        raise InputError(
            f"{path}: holds the requests of one of {stats.api_processes} API server processes, "
            "and the engine had those of all; record with --api-server-count 1"
        )
    ended = [(s, r) for s, r in stats.finished if r.finish_reason not in _FAILED]
    if not ended:
        raise InputError(f"{path}: no request ended while it was recorded")
    wall_s = np.array([s for s, _ in ended])
    e2e_s, queued_s, prefill_s, decode_s = np.array(
        [(r.e2e_s, r.queued_s, r.prefill_s, r.decode_s) for _, r in ended]
    ).T
    for name, values in (("queued_s", queued_s), ("prefill_s", prefill_s), ("decode_s", decode_s)):
        if (values < 0).any():
            where = int((values < 0).argmax())
            raise InputError(
                f"{path}: request {ended[where][1].request_id}: {name} is {values[where]:g}, "
                "below 0"
            )
    arrival_s = wall_s - e2e_s
    return checked_run(
        path,
        at_client=False,
        arrival_s=arrival_s - arrival_s.min(),
        counts=(
            np.array([r.prompt_tokens for _, r in ended], dtype=np.float64),
            np.array([r.output_tokens for _, r in ended], dtype=np.float64),
        ),
        ttft_s=e2e_s - decode_s,
        e2e_s=e2e_s,
        queue_s=queued_s,
        engine_ttft_s=prefill_s,
        itl_s=None,
        settings=_settings(stats.header),
        failed=len(stats.finished) - len(ended),
        origin=Origin(
            model=stats.header.model,
            gpu=stats.header.gpu,
            engine_version=stats.header.vllm_version,
            tensor_parallel_size=stats.header.tensor_parallel_size,
        ),
        remarks=tuple(_remarks(path, stats)),
    )


def _settings(header: Header) -> dict[str, object]:
    found: dict[str, object] = {
        key: getattr(header, key) for key in _SETTINGS if getattr(header, key) is not None
    }
    found["async_scheduling"] = header.scheduling_mode == "async"
    return found


def _remarks(path: Path, stats: Stats) -> list[str]:
    requests = [request for _, request in stats.finished]
    cached = sum(request.cached_tokens for request in requests)
    prompts = sum(request.prompt_tokens for request in requests)
    written = sum(request.output_tokens for request in requests)
    remarks = []
    if cached > _SMALL_SHARE * prompts:
        remarks.append(
            f"{path.name}: {cached / prompts:.0%} of the prompt tokens came from the prefix cache; "
            "a replay computes them all"
        )
    if stats.generation_tokens - written > _SMALL_SHARE * stats.generation_tokens:
        remarks.append(
            f"{path.name}: {1 - written / stats.generation_tokens:.0%} of the tokens were of "
            "requests that had not ended; a replay lacks that load"
        )
    return remarks
