"""End-to-end runs of real vLLM servers that ``aiconfigurator-core`` ships, one row a run.

``systems/silicon_sample.csv`` holds the mean time to first token and per output token of
closed-loop runs. Here are those of vLLM on H100 and H200 with prefill and decode on the same GPUs;
every one of them is either usable or excluded for a reason that is kept with it, never for its
numbers.

Most rows come from InferenceX (formerly InferenceMAX), whose scripts are public: requests with
prompts and outputs uniform in [0.8 L, L], ten times as many as are in flight, ``--ignore-eos``,
prefix caching off. The others (vLLM 0.12.0) were measured by the package's authors, who do not say
how; the same is assumed of them.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fleetsim.calibration import aic
from fleetsim.calibration.parameters import SchedulingMode
from fleetsim.calibration.recipes import GPUS
from fleetsim.traces.errors import InputError

FILE = "systems/silicon_sample.csv"
NEEDED = (
    *("id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "mode"),
    *("isl", "osl", "tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"),
    *("silicon_ttft_ms", "silicon_tpot_ms"),
)

LISTED_AGAIN = "a run that is listed again"

FITTED_TENSOR_PARALLEL_SIZES = (2, 4)
FITTED_BELOW_CONCURRENCY = 512
FITTED_BELOW_PROMPT_TOKENS = 8000


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a profile of a row's model is made from, and where it may be fitted to.

    Attributes:
        name: short.
        hf_id: a configuration that the package ships.
        dtype: as for ``fleetsim calibrate from-aic``.
        fitted: whether host work may be fitted to some of its rows.
    """

    name: str
    hf_id: str
    dtype: str = "auto"
    fitted: bool = False


MODELS = {
    "meta-llama/Llama-3.1-70B": ServedModel(
        "Llama-70B FP8", "meta-llama/Meta-Llama-3.1-70B", "fp8", fitted=True
    ),
    "Qwen/Qwen3-32B": ServedModel("Qwen3-32B", "Qwen/Qwen3-32B", fitted=True),
    "openai/gpt-oss-120b": ServedModel("gpt-oss-120b", "openai/gpt-oss-120b", fitted=True),
    "nvidia/Llama-3.1-8B-Instruct-FP8": ServedModel(
        "Llama-8B FP8", "meta-llama/Meta-Llama-3.1-8B", "fp8"
    ),
    "Qwen/Qwen3-235B-A22B-FP8": ServedModel("Qwen3-235B-A22B FP8", "Qwen/Qwen3-235B-A22B-FP8"),
    "MiniMaxAI/MiniMax-M2.5": ServedModel("MiniMax-M2.5", "MiniMaxAI/MiniMax-M2.5"),
    "moonshotai/Kimi-K2.5": ServedModel("Kimi-K2.5", "moonshotai/Kimi-K2.5"),
}

_VERSION_NOT_STATED = {"meta-llama/Llama-3.1-70B": "0.10.2"}
"""What InferenceMAX ran on the day of the rows that name no version."""


_FP8_KV_CACHE = (("meta-llama/Llama-3.1-70B", "h200"),)
"""Served with ``--kv-cache-dtype fp8``: InferenceX's script for the H200 has it. Of its two for the
H100 the later one has it too, but three rows whose requests wait for the KV cache tell that they
were run by the earlier one."""


@dataclass(frozen=True, slots=True)
class SiliconRow:
    """One measured run.

    Attributes:
        row_id: the file's.
        model: what its profile is made from.
        gpu: ``h100`` or ``h200``.
        tensor_parallel_size: GPUs of the replica.
        engine_version: vLLM's, or nothing where the file does not say.
        mode: how that version, started like this, schedules.
        kv_cache_dtype: as vLLM was told.
        concurrency: requests in flight.
        prompt_tokens, output_tokens: the longest of each.
        ttft_s, tpot_s: measured means over requests.
    """

    row_id: str
    model: ServedModel
    gpu: str
    tensor_parallel_size: int
    engine_version: str
    mode: SchedulingMode
    kv_cache_dtype: str
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    tpot_s: float

    @property
    def may_be_fitted(self) -> bool:
        """Whether the protocol lets host work be fitted to it, if its KV cache is large enough.

        All others are held out.
        """
        return (
            self.model.fitted
            and self.prompt_tokens < FITTED_BELOW_PROMPT_TOKENS
            and self.tensor_parallel_size in FITTED_TENSOR_PARALLEL_SIZES
            and self.concurrency < FITTED_BELOW_CONCURRENCY
        )


@dataclass(frozen=True, slots=True)
class ExcludedRow:
    """A row that is not simulated, and why."""

    row_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SiliconRows:
    """All rows of vLLM on H100 and H200, prefill and decode together: usable or not."""

    usable: tuple[SiliconRow, ...]
    excluded: tuple[ExcludedRow, ...]


def shipped_file() -> Path:
    """Where the installed package has its rows.

    Raises:
        InputError: the package is not installed.
    """
    aic.package_version()
    return Path(str(files("aiconfigurator_core") / FILE))


def read_silicon(path: Path | None = None) -> SiliconRows:
    """The rows of a file, by default of the shipped one.

    A run that is listed twice (same set-up, both times equal to 0.01 ms) counts once: the first in
    the file, but one of a database dump behind all others. Runs of one set-up that gave
    different times are different runs and all stay.

    Raises:
        InputError: the package is not installed; the file cannot be read, lacks a column, or has
            a value that is no number.
    """
    path = path or shipped_file()
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [key for key in NEEDED if key not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: has no column {missing[0]}")
            records = [record for record in reader if _is_of_interest(record)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text") from error
    usable: list[SiliconRow] = []
    excluded: list[ExcludedRow] = []
    first: dict[tuple[object, ...], str] = {}
    for record in sorted(records, key=lambda record: "db-dump" in record["silicon_data_source"]):
        row_id = record["id"]
        again = first.setdefault(_run_of(path, record), row_id)
        reason = f"of {again}: {LISTED_AGAIN}" if again != row_id else _unusable(record)
        if reason:
            excluded.append(ExcludedRow(row_id, reason))
        else:
            usable.append(_usable(path, record))
    return SiliconRows(tuple(usable), tuple(excluded))


def _is_of_interest(record: dict[str, str]) -> bool:
    systems = [system for system, _ in GPUS.values()]
    return (record["backend"], record["mode"]) == ("vllm", "agg") and record["system"] in systems


def _run_of(path: Path, record: dict[str, str]) -> tuple[object, ...]:
    """What two listings of one run have in common."""
    setup = ("model_path", "system", "isl", "osl", "tp_size")
    times = ("silicon_ttft_ms", "silicon_tpot_ms")
    return (
        *(record[key] for key in setup),
        _concurrency(record),
        *(round(_number(path, record, key), 2) for key in times),
    )


def _concurrency(record: dict[str, str]) -> int | None:
    stated = re.search(r"silicon_concurrency=(\d+)", record["silicon_data_source"])
    return int(stated[1]) if stated and int(stated[1]) else None


def _unusable(record: dict[str, str]) -> str:
    """Why the set-up cannot be simulated, or nothing."""
    if _concurrency(record) is None:
        return "does not say how many requests were in flight"
    if record["model_path"] not in MODELS:
        return f"no configuration is known for {record['model_path']}"
    attention_dp, moe_tp, moe_ep = (
        int(record[key] or 1) for key in ("attention_dp_size", "moe_tp_size", "moe_ep_size")
    )
    if attention_dp > 1 or moe_tp * moe_ep > int(record["tp_size"]):
        return "not covered: attention is data-parallel over several engines"
    if moe_ep > 1:
        return "not covered: experts are spread over GPUs (expert parallelism)"
    return ""


def _usable(path: Path, record: dict[str, str]) -> SiliconRow:
    version = record["backend_version"] or _VERSION_NOT_STATED.get(record["model_path"], "")
    gpu = next(gpu for gpu, (system, _) in GPUS.items() if system == record["system"])
    has_fp8_cache = (record["model_path"], gpu) in _FP8_KV_CACHE
    return SiliconRow(
        row_id=record["id"],
        model=MODELS[record["model_path"]],
        gpu=gpu,
        tensor_parallel_size=_count(path, record, "tp_size"),
        engine_version=version,
        mode=scheduling_of(version),
        kv_cache_dtype="fp8" if has_fp8_cache else "auto",
        concurrency=_concurrency(record) or 0,
        prompt_tokens=_count(path, record, "isl"),
        output_tokens=_count(path, record, "osl"),
        ttft_s=_number(path, record, "silicon_ttft_ms") * 1e-3,
        tpot_s=_number(path, record, "silicon_tpot_ms") * 1e-3,
    )


def scheduling_of(engine_version: str) -> SchedulingMode:
    """Async, but for 0.12.0: the scripts behind the other rows switch it on up to 0.11.

    From 0.14 on it is vLLM's default; the rows of 0.12.0 come from elsewhere and name no flag.
    """
    return "sync" if engine_version == "0.12.0" else "async"


def _number(path: Path, record: dict[str, str], key: str) -> float:
    try:
        value = float(record[key])
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1e9:
        raise InputError(f"{path}: {record['id']}: {key} is {record[key]!r}; a time in ms is > 0")
    return value


def _count(path: Path, record: dict[str, str], key: str) -> int:
    if not record[key].isdecimal() or not int(record[key]):
        raise InputError(f"{path}: {record['id']}: {key} is {record[key]!r}; give a count")
    return int(record[key])


def of_model(rows: Sequence[SiliconRow], part_of_name: str) -> list[SiliconRow]:
    """Those of models whose name has this in it, whatever the case.

    Raises:
        InputError: there is none; names those that there are.
    """
    found = [row for row in rows if part_of_name.lower() in row.model.name.lower()]
    if not found:
        names = ", ".join(dict.fromkeys(row.model.name for row in rows))
        raise InputError(f"--model {part_of_name}: no such rows; there are {names}")
    return found
