"""What every measured run is, whatever file it was read from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetsim.traces.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

REQUESTS = "requests.jsonl"
_LONGEST_RUN_S = 1e7


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run says of where it was measured; None where it says nothing.

    Attributes:
        model: the name that requests gave.
        gpu: its name.
        engine_version: vLLM's.
        tensor_parallel_size: GPUs of the engine.
    """

    model: str | None = None
    gpu: str | None = None
    engine_version: str | None = None
    tensor_parallel_size: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRun:
    """One run, its requests in order of arrival.

    Attributes:
        path: the file or folder it was read from.
        at_client: whether latencies were measured at an HTTP client, beyond the API server.
        arrival_s: since the first arrival.
        prompt_tokens, output_tokens: of each request.
        ttft_s, e2e_s: from arrival to the first and to the last token.
        queue_s: time that each request waited in the scheduler's queue, or None where unknown.
        engine_ttft_s: from the first schedule to the first token, or None where unknown.
        itl_s: gaps between tokens as the client saw them, of all requests, or None where there are
            none, or chunks that do not hold one token each.
        settings: the engine's settings as far as the run states them, by their vLLM names.
        failed: requests in the file that failed and are left out.
        origin: model, GPU and engine as far as the run states them.
        request_rate: that the client was told, per second; infinite for all at once; or None.
        max_concurrency: requests that the client had in flight at most, or None for any number.
        client_queue_s: how long each request waited at the client for that, before its arrival.
        remarks: what a reader of a comparison with this run must know.
    """

    path: Path
    at_client: bool
    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    ttft_s: Floats
    e2e_s: Floats
    queue_s: Floats | None
    engine_ttft_s: Floats | None
    itl_s: Floats | None
    settings: Mapping[str, Any]
    failed: int = 0
    origin: Origin = Origin()
    request_rate: float | None = None
    max_concurrency: int | None = None
    client_queue_s: Floats | None = None
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def name(self) -> str:
        """What tells it from other runs: its folder where the file has the usual name."""
        return self.path.resolve().parent.name if self.path.name == REQUESTS else self.path.name


def checked_run(path: Path, *, counts: tuple[Floats, Floats], **columns: Any) -> MeasuredRun:
    """The run, if its lengths and times are possible, in order of arrival.

    Raises:
        InputError: a length is no whole number of at least 1, or a time is not a possible one.
    """
    n_in, n_out = counts
    for name, values in (("prompt tokens", n_in), ("output tokens", n_out)):
        bad = ~np.isfinite(values) | (values < 1) | (values != np.floor(values))
        if bad.any():
            where = int(bad.argmax())
            raise InputError(
                f"{path}: request {where + 1}: {name} are {values[where]:g}; "
                "give whole numbers of at least 1"
            )
    for name in ("arrival_s", "ttft_s", "e2e_s"):
        values = columns[name]
        bad = ~np.isfinite(values) | (values < 0) | (values > _LONGEST_RUN_S)
        if bad.any():
            where = int(bad.argmax())
            raise InputError(
                f"{path}: request {where + 1}: {name} is {values[where]:g}; times must be "
                "finite seconds, not below 0 and not years long"
            )
    order = np.argsort(columns["arrival_s"], kind="stable")
    for name in ("arrival_s", "ttft_s", "e2e_s", "queue_s", "engine_ttft_s", "client_queue_s"):
        if columns.get(name) is not None:
            columns[name] = columns[name][order]
    return MeasuredRun(
        path=path,
        prompt_tokens=n_in[order].astype(np.int64),
        output_tokens=n_out[order].astype(np.int64),
        **columns,
    )
