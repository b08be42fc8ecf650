"""Which published runs count, and why the others do not."""

import csv
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from fleetsim.calibration.silicon import (
    LISTED_AGAIN,
    NEEDED,
    SiliconRow,
    of_model,
    read_silicon,
)
from fleetsim.traces.errors import InputError

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core is not installed (extra: aic)",
)

LLAMA = {
    "id": "llama",
    "silicon_data_source": "source_file=2026-04-06.csv; model=Llama; silicon_concurrency=16; x=1",
    "backend": "vllm",
    "backend_version": "",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h100_sxm",
    "mode": "agg",
    "isl": "1024",
    "osl": "128",
    "tp_size": "4",
    "attention_dp_size": "1",
    "moe_tp_size": "4",
    "moe_ep_size": "1",
    "silicon_ttft_ms": "121.4132",
    "silicon_tpot_ms": "13.1921",
}


def write(path: Path, *changes: dict[str, str]) -> Path:
    """A file of one line for each change of `LLAMA`."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, NEEDED)
        writer.writeheader()
        writer.writerows({**LLAMA, **change} for change in changes)
    return path


def one(path: Path, **change: str) -> SiliconRow:
    (row,) = read_silicon(write(path, change)).usable
    return row


def test_a_row_says_what_a_profile_is_made_from(tmp_path: Path) -> None:
    row = one(tmp_path / "rows.csv")
    assert (row.model.hf_id, row.model.dtype) == ("meta-llama/Meta-Llama-3.1-70B", "fp8")
    assert (row.gpu, row.tensor_parallel_size, row.concurrency) == ("h100", 4, 16)
    assert (row.prompt_tokens, row.output_tokens) == (1024, 128)
    assert (row.ttft_s, row.tpot_s) == pytest.approx((0.1214132, 0.0131921))
    assert (row.engine_version, row.mode, row.kv_cache_dtype) == ("0.10.2", "async", "auto")
    assert one(tmp_path / "rows.csv", system="h200_sxm").kv_cache_dtype == "fp8"
    assert one(tmp_path / "rows.csv", backend_version="0.12.0").mode == "sync"


@pytest.mark.parametrize(
    ("change", "may_be"),
    [
        ({}, True),
        ({"tp_size": "2", "moe_tp_size": "2"}, True),
        ({"tp_size": "8"}, False),
        ({"tp_size": "1", "moe_tp_size": "1"}, False),
        ({"isl": "8192"}, False),
        ({"silicon_data_source": "silicon_concurrency=512"}, False),
        ({"silicon_data_source": "silicon_concurrency=511"}, True),
        ({"model_path": "openai/gpt-oss-120b"}, True),
        ({"model_path": "MiniMaxAI/MiniMax-M2.5"}, False),
        ({"model_path": "Qwen/Qwen3-235B-A22B-FP8"}, False),
    ],
)
def test_the_protocol_says_what_may_be_fitted_to(
    tmp_path: Path, change: dict[str, str], may_be: bool
) -> None:
    assert one(tmp_path / "rows.csv", **change).may_be_fitted is may_be


def test_a_run_that_is_listed_again_counts_once(tmp_path: Path) -> None:
    """The same set-up and the same times; other times are another run."""
    rows = read_silicon(
        write(
            tmp_path / "rows.csv",
            {"id": "dump", "silicon_data_source": "db-dump/1; silicon_concurrency=16"},
            {"id": "a"},
            {"id": "b", "silicon_ttft_ms": "121.41"},
            {"id": "slower", "silicon_ttft_ms": "121.43"},
            {"id": "alone", "silicon_data_source": "silicon_concurrency=8"},
        )
    )
    assert [row.row_id for row in rows.usable] == ["a", "slower", "alone"]
    reasons = {row.row_id: row.reason for row in rows.excluded}
    assert reasons == {"b": f"of a: {LISTED_AGAIN}", "dump": f"of a: {LISTED_AGAIN}"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"silicon_data_source": "source_file=x.csv"}, "how many requests were in flight"),
        ({"model_path": "who/knows"}, "no configuration is known for who/knows"),
        ({"attention_dp_size": "4"}, "data-parallel"),
        ({"tp_size": "2"}, "data-parallel"),  # experts over four GPUs, attention over two
        ({"moe_tp_size": "1", "moe_ep_size": "4"}, "expert parallelism"),
    ],
)
def test_what_cannot_be_simulated_is_excluded_for_its_reason(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    rows = read_silicon(write(tmp_path / "rows.csv", change))
    assert rows.usable == ()
    (excluded,) = rows.excluded
    assert excluded.row_id == "llama"
    assert reason in excluded.reason


def test_runs_of_other_servers_and_machines_are_none_of_ours(tmp_path: Path) -> None:
    others = {"backend": "trtllm"}, {"mode": "disagg"}, {"system": "b200_sxm"}
    rows = read_silicon(write(tmp_path / "rows.csv", *others))
    assert (rows.usable, rows.excluded) == ((), ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"silicon_ttft_ms": "soon"}, "llama: silicon_ttft_ms is 'soon'"),
        ({"silicon_tpot_ms": "0"}, "llama: silicon_tpot_ms is '0'"),
        ({"silicon_tpot_ms": "nan"}, "llama: silicon_tpot_ms is 'nan'"),
        ({"isl": "1k"}, "llama: isl is '1k'; give a count"),
        ({"osl": ""}, "llama: osl is ''; give a count"),
        ({"tp_size": "two"}, "llama: tp_size is 'two'; give a count"),
        ({"moe_ep_size": "x"}, "llama: moe_ep_size is 'x'; give a count"),
    ],
)
def test_a_wrong_number_is_refused(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_silicon(write(tmp_path / "rows.csv", change))
    assert "\n" not in str(refused.value)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with pytest.raises(InputError, match="cannot be read"):
        read_silicon(path)
    path.write_text("id,isl\na,1\n")
    with pytest.raises(InputError, match="has no column silicon_data_source"):
        read_silicon(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_silicon(path)


def test_rows_of_a_model(tmp_path: Path) -> None:
    rows = read_silicon(write(tmp_path / "rows.csv", {}, {"model_path": "Qwen/Qwen3-32B"})).usable
    assert [row.model.name for row in of_model(rows, "QWEN")] == ["Qwen3-32B"]
    with pytest.raises(InputError, match="--model gpt: no such rows; there are Llama-70B FP8, Q"):
        of_model(rows, "gpt")


@needs_package
def test_every_row_of_the_shipped_file_is_accounted_for() -> None:
    rows = read_silicon()
    assert len(rows.usable) + len(rows.excluded) == 573
    ids = [row.row_id for row in (*rows.usable, *rows.excluded)]
    assert len(set(ids)) == 573
    reasons = Counter(row.reason.rpartition(": ")[2] for row in rows.excluded)
    assert reasons["does not say how many requests were in flight"] == 3
    assert reasons[LISTED_AGAIN] == 78
    assert sum(row.may_be_fitted for row in rows.usable) == 140
