"""Published runs simulated and scored: against our own engine, so that the answer is known."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fleetsim.calibration import HostWork, Profile, StepCostParameters, analytic_profile
from fleetsim.calibration.silicon import MODELS, ExcludedRow, SiliconRow, read_silicon
from fleetsim.sim.backtest.validation import (
    NotCovered,
    Outcome,
    Validation,
    draw_lengths,
    engine_settings,
    fit_setup,
    is_kv_limited,
    simulate_row,
    validate,
)
from fleetsim.sim.backtest.validation_page import page_tables, renew_page
from fleetsim.sim.backtest.validation_report import (
    validation_csv,
    validation_figure,
    validation_json,
)
from fleetsim.sim.backtest.validation_scores import score, score_groups, score_targets
from fleetsim.traces.errors import InputError

needs_tables = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core is not installed (extra: aic)",
)

STEP_S = 0.01
ROW = SiliconRow(
    row_id="a",
    model=MODELS["Qwen/Qwen3-32B"],
    gpu="h100",
    tensor_parallel_size=2,
    engine_version="0.12.0",
    mode="sync",
    kv_cache_dtype="auto",
    concurrency=4,
    prompt_tokens=1000,
    output_tokens=100,
    ttft_s=0.020,
    tpot_s=0.010,
)


def profile(num_gpu_blocks: int = 4000, host: HostWork | None = None) -> Profile:
    return analytic_profile(
        StepCostParameters(constant_s=STEP_S),
        num_gpu_blocks=num_gpu_blocks,
        host=host or HostWork(),
        api_latency_s=0.005,
    )


def test_steps_of_equal_length_give_the_time_per_token() -> None:
    """Each step gives each request a token; the last prefill of a schedule costs none more."""
    outcome = simulate_row(ROW, profile())
    assert outcome.tpot_s == pytest.approx(STEP_S)
    assert outcome.tpot_error == pytest.approx(0.0)
    # at least the API server and one step, at most another step in flight on arrival
    assert 0.005 + STEP_S <= outcome.ttft_s <= 0.005 + 2 * STEP_S
    assert outcome.fitted
    by_hand = 4 * 90 / (0.020 + 89 * 0.010)
    assert outcome.measured_tokens_per_s == pytest.approx(by_hand)


def test_host_work_is_that_of_the_rows_scheduling() -> None:
    host = HostWork(base_s=0.004, residue_s=0.001)
    assert simulate_row(ROW, profile(host=host)).tpot_s == pytest.approx(STEP_S + 0.005)
    hidden = simulate_row(replace(ROW, mode="async"), profile(host=host))
    assert hidden.tpot_s == pytest.approx(STEP_S + 0.001)
    other = HostWork(residue_s=0.002)
    assert simulate_row(ROW, profile(), other).tpot_s == pytest.approx(STEP_S + 0.002)


def test_lengths_are_drawn_once_and_for_all_within_their_bounds() -> None:
    row = replace(ROW, concurrency=200)
    lengths = draw_lengths(row)
    assert len(lengths.prompt_tokens) == len(lengths.output_tokens) == 2000
    for drawn, longest in ((lengths.prompt_tokens, 1000), (lengths.output_tokens, 100)):
        assert drawn.min() == longest * 4 // 5
        assert drawn.max() == longest
        assert drawn.mean() == pytest.approx(0.9 * longest, rel=0.01)
    assert abs(np.corrcoef(lengths.prompt_tokens, lengths.output_tokens)[0, 1]) < 0.1
    again = draw_lengths(row)
    assert (again.prompt_tokens == lengths.prompt_tokens).all()
    other = draw_lengths(replace(row, row_id="b"))
    assert (other.prompt_tokens != lengths.prompt_tokens).any()


def test_a_row_whose_requests_may_not_all_fit_is_held_out() -> None:
    for blocks, limited in ((277, False), (276, True)):  # 4 requests of 69 blocks
        of_blocks = profile(num_gpu_blocks=blocks)
        assert is_kv_limited(ROW, engine_settings(ROW, of_blocks)) is limited
        assert simulate_row(ROW, of_blocks).fitted is not limited
    with pytest.raises(InputError, match="the KV cache holds 784 tokens; one request has 1,100"):
        simulate_row(ROW, profile(num_gpu_blocks=50))


def test_scores_are_those_of_the_ratios() -> None:
    result = score([1.1, 0.8, 1.0], [1.0, 1.0, 1.0])
    assert result.median == pytest.approx(0.1)
    assert result.p95 == pytest.approx(0.19)
    assert result.bias == pytest.approx(-np.log(1.1 * 0.8) / 3)
    assert result.spread == pytest.approx(np.log([1.1, 0.8, 1.0]).std())


def outcome(tpot_error: float, ttft_error: float = 0.0, **change: object) -> Outcome:
    row = replace(ROW, tensor_parallel_size=8, **change)  # type: ignore[arg-type]
    return Outcome(
        row=row,
        fitted=row.may_be_fitted,
        ttft_s=row.ttft_s * (1 + ttft_error),
        tpot_s=row.tpot_s * (1 + tpot_error),
        preemptions=0,
    )


def made() -> Validation:
    fitted = Outcome(ROW, True, 0.02, 0.0101, 0)
    llama = MODELS["meta-llama/Llama-3.1-70B"]
    gpt = MODELS["openai/gpt-oss-120b"]
    return Validation(
        outcomes=(
            outcome(0.05, row_id="b"),
            fitted,
            outcome(0.07, 0.3, row_id="c"),
            outcome(-0.5, 0.9, row_id="d", prompt_tokens=4096),
            outcome(0.01, row_id="e", model=gpt),
            outcome(9.0, row_id="f", model=gpt, concurrency=512),
        ),
        not_covered=(NotCovered(replace(ROW, row_id="g", model=llama), "no table"),),
    )


def test_groups_keep_fitted_and_held_out_apart() -> None:
    groups = {(group.name, group.fitted): group for group in score_groups(made().outcomes)}
    assert list(groups) == [
        ("Qwen3-32B", True),
        ("Qwen3-32B", False),
        ("gpt-oss-120b", False),
        ("gpt-oss-120b, 512 in flight", False),
    ]
    assert groups["Qwen3-32B", True].tpot.median == pytest.approx(0.01)
    assert groups["Qwen3-32B", False].runs == 3
    assert groups["Qwen3-32B", False].tpot.median == pytest.approx(0.07)


def test_targets_are_judged_on_held_out_runs_alone() -> None:
    targets = {target.what: target for target in score_targets(made().outcomes)}
    assert set(targets) == {
        "Qwen3-32B: TPOT, median",
        "Qwen3-32B: TPOT, p95",
        "Qwen3-32B: TTFT, prompts of 1k, median",
        "gpt-oss-120b: TPOT, median",
    }
    median = targets["Qwen3-32B: TPOT, median"]
    assert (median.runs, median.is_met) == (3, False)
    assert median.reached == pytest.approx(0.07)
    ttft = targets["Qwen3-32B: TTFT, prompts of 1k, median"]
    assert (ttft.runs, ttft.is_met) == (2, True)
    assert ttft.reached == pytest.approx(0.15)
    assert targets["gpt-oss-120b: TPOT, median"].runs == 1


EXCLUDED = (ExcludedRow("x", "of a: a run that is listed again"),)


def test_no_row_is_lost_on_the_way_to_a_file(tmp_path: Path) -> None:
    validation = made()
    (tmp_path / "v.csv").write_text(validation_csv(validation, EXCLUDED))
    table = pd.read_csv(tmp_path / "v.csv").set_index("id")
    assert set(table.index) == {*"abcdefgx"}
    assert table["group"].value_counts().to_dict() == {
        "held out": 5,
        "fitted": 1,
        "not covered": 1,
        "excluded": 1,
    }
    assert table.loc["g", "reason"] == "no table"
    assert table.loc["c", "ttft_error"] == pytest.approx(0.3)
    as_json = json.loads(json.dumps(validation_json(validation, EXCLUDED), allow_nan=False))
    assert {run["id"] for run in as_json["runs"]} == {*"abcdef"}
    assert as_json["not_covered"] == [{"id": "g", "reason": "no table"}]
    assert as_json["targets"][0]["met"] is False
    validation_figure(validation).savefig(tmp_path / "v.png")
    assert (tmp_path / "v.png").stat().st_size > 10_000


def test_a_page_gets_its_tables_and_keeps_its_words(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    names = page_tables(made(), EXCLUDED)
    places = "".join(f"<!-- {name} -->\nold\n<!-- end of {name} -->\n" for name in names)
    page.write_text(f"before\n{places}after\n")
    renew_page(page, made(), EXCLUDED)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert (
        "| Qwen3-32B | 8 H100 | 0.12.0 | 4096 / 100 | 4 | held out | 10.00 | 5.00 | -50.0% |"
        in text
    )
    assert "| 1 | a run that is listed again |" in text
    renew_page(page, made(), EXCLUDED)
    assert page.read_text() == text
    page.write_text(text.replace("<!-- end of rows -->", ""))
    with pytest.raises(InputError, match="has no <!-- rows -->"):
        renew_page(page, made(), EXCLUDED)
    with pytest.raises(InputError, match="cannot be read"):
        renew_page(tmp_path / "none.md", made(), EXCLUDED)


def pick(wanted: Callable[[SiliconRow], bool]) -> SiliconRow:
    return next(row for row in read_silicon().usable if row.may_be_fitted and wanted(row))


@pytest.mark.slow
@needs_tables
@pytest.mark.parametrize(
    ("name", "tpot_within"), [("Llama-70B FP8", 0.12), ("Qwen3-32B", 0.08), ("gpt-oss", 0.12)]
)
def test_a_fitted_run_of_each_family_from_tables_to_tokens(name: str, tpot_within: float) -> None:
    row = pick(lambda row: name in row.model.name and row.concurrency == 16)
    result = simulate_row(row, fit_setup(row))
    assert abs(result.tpot_error) < tpot_within
    assert abs(result.ttft_error) < 0.5


@pytest.mark.slow
@needs_tables
def test_workers_do_not_change_the_result() -> None:
    rows = [row for row in read_silicon().usable if row.model.name == "Qwen3-32B"][:6]
    told: list[tuple[int, int]] = []
    alone = validate(rows, 1, lambda done, total: told.append((done, total)))
    assert alone == validate(rows, 2)
    assert told[-1][0] == told[-1][1]


@pytest.mark.slow
@needs_tables
def test_what_the_tables_do_not_cover_is_named() -> None:
    rows = [row for row in read_silicon().usable if row.tensor_parallel_size == 8]
    (found,) = validate([row for row in rows if "MiniMax" in row.model.name][:1], 1).not_covered
    assert "cannot be divided over 8 GPUs" in found.reason
