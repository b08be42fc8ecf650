"""Overheads that are known come back out of bench results; what is no such result is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.backtest import bench_results as made_by_us

from fleetsim.calibration import HostWork, Profile, load_profile
from fleetsim.calibration.parameters import SchedulingMode
from fleetsim.sim.backtest import read_run
from fleetsim.sim.backtest.bench_fit import BenchFit, fit_bench
from fleetsim.sim.backtest.bench_parameters import scaled_steps
from fleetsim.sim.backtest.bench_runs import in_flight, read_bench_runs, replay_as_sent
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.traces.errors import InputError

Result = dict[str, Any]


def fit(
    paths: list[Path],
    mode: SchedulingMode = "sync",
    base: Profile | None = None,
    fit_steps: bool | None = None,
) -> BenchFit:
    runs = read_bench_runs(paths)
    return fit_bench(runs, base or made_by_us.base(), made_by_us.settings(mode), fit_steps)


@pytest.mark.parametrize(
    ("mode", "noise"),
    [
        ("sync", 0.0),
        pytest.param("async", 0.0, marks=pytest.mark.slow),
        pytest.param("sync", 0.1, marks=pytest.mark.slow),
    ],
)
def test_known_overheads_come_back(tmp_path: Path, mode: SchedulingMode, noise: float) -> None:
    true = made_by_us.true_profile(mode)
    found = fit(made_by_us.write_rates(tmp_path, true, mode, noise=noise), mode)
    if mode == "sync":
        assert found.values["host_base"] == pytest.approx(made_by_us.HOST_BASE, rel=0.1)
        assert found.values["host_per_seq"] == pytest.approx(made_by_us.HOST_PER_SEQ, abs=0.15)
    # Async scheduling shows the residue alone, half a millisecond of a step of 7 to 12: what it is
    # at a batch size comes back to 1 % of a step, its two parts do not.
    was, is_ = (p.host_work_for(mode).work for p in (true, found.profile))
    for sequences in (2, 14, 25):
        residue_s = is_.residue_s + is_.residue_per_seq_s * sequences
        wanted_s = was.residue_s + was.residue_per_seq_s * sequences
        assert residue_s == pytest.approx(wanted_s, abs=0.1e-3)
    assert found.values["api_request"] == pytest.approx(made_by_us.API_REQUEST, abs=0.12)
    # Noise of 10 % on TTFTs near 50 ms, 200 prompts in two halves 950 tokens apart, and two runs:
    # the standard error of a price per token is 0.5 us, a quarter of the base profile's.
    width = 0.75 if noise else 0.5
    assert found.values["api_token"] == pytest.approx(made_by_us.API_TOKEN, abs=width)
    assert found.told == ()
    assert found.profile.step_cost == made_by_us.base().step_cost
    for score in found.scores:
        assert abs(score.after.error("TPOT")) < 0.025
        assert abs(score.after.error("TTFT")) < 0.025
    assert max(abs(score.before.error("TPOT")) for score in found.scores) > 0.005


def test_the_middle_rate_is_kept_out_and_scores_the_fit(tmp_path: Path) -> None:
    paths = made_by_us.write_rates(tmp_path, made_by_us.true_profile())
    found = fit([paths[2], paths[0], paths[1]])
    assert [score.held_out for score in found.scores] == [False, True, False]
    words = found.profile.provenance.validation_runs
    assert words.startswith("r8.json (8/s), kept from the fit: mean TTFT ")
    spoilt = json.loads(paths[1].read_text())
    spoilt["ttfts"] = [3.0 * ttft for ttft in spoilt["ttfts"]]
    made_by_us.write(paths[1], spoilt)
    again = fit(paths)
    assert again.values == found.values  # it was not looked at
    assert again.scores[1].after.error("TTFT") < -0.5


def test_one_rate_tells_one_number_of_each(tmp_path: Path) -> None:
    found = fit(made_by_us.write_rates(tmp_path, made_by_us.true_profile(), rates=(8.0,)))
    assert set(found.values) == {"host", "api"}
    assert "one batch size: host work is one number" in found.told[0]
    assert "API server's time is one number" in found.told[1]
    base = made_by_us.base().host_work_for("sync").work
    work = found.profile.host_work_for("sync").work
    assert work.base_s / work.per_seq_s == pytest.approx(base.base_s / base.per_seq_s, rel=1e-3)
    assert abs(found.scores[0].after.error("TPOT")) < 0.01
    assert found.profile.provenance.validation_runs.startswith("none: 1 bench results")


def test_rates_with_like_batches_are_not_split(tmp_path: Path) -> None:
    found = fit(made_by_us.write_rates(tmp_path, made_by_us.true_profile(), rates=(8.0, 9.0)))
    assert "host" in found.values
    assert "one batch size" in found.told[0]


@pytest.mark.slow
def test_gpu_times_are_fitted_only_where_overheads_do_not_do(tmp_path: Path) -> None:
    paths = made_by_us.write_rates(tmp_path, made_by_us.true_profile("async", decode=0.85), "async")
    found = fit(paths, "async")
    assert found.values["decode"] == pytest.approx(0.85, abs=0.05)
    assert "GPU time of decodes was fitted too" in " ".join(found.told)
    assert found.profile.fit_error is None
    base = made_by_us.base()
    scaled = base.step_cost.per_decode_kv_token_s * found.values["decode"]
    assert found.profile.step_cost.per_decode_kv_token_s == pytest.approx(scaled, rel=1e-3)
    assert found.profile.step_cost.per_prefill_square_s == base.step_cost.per_prefill_square_s
    never = fit(paths, "async", fit_steps=False)
    assert never.profile.step_cost == base.step_cost
    assert "does not explain the runs" in never.told[-1]


@pytest.mark.parametrize(("decode", "prefill"), [(0.5, 1.0), (1.0, 2.0), (0.8, 1.5)])
def test_factors_on_gpu_times_reach_the_steps_that_they_name(decode: float, prefill: float) -> None:
    own = made_by_us.base().step_cost
    steps = scaled_steps(own, decode, prefill)
    host = HostWork()
    before, after = StepCost(own, host, "sync"), StepCost(steps, host, "sync")
    for decodes in (1, 64, 256):
        kv_tokens = 1000 * decodes
        wanted_s = decode * before.decode_step_s(decodes, kv_tokens)
        assert after.decode_step_s(decodes, kv_tokens) == pytest.approx(wanted_s, rel=1e-5)
    for knot, was, is_ in zip(
        own.token_knots, own.token_slopes_s, steps.token_slopes_s, strict=True
    ):
        assert is_ == pytest.approx(was * (decode if knot < 256 else prefill), rel=1e-5)
    assert steps.per_prefill_square_s == pytest.approx(own.per_prefill_square_s * prefill, rel=1e-5)


def test_another_gpu_or_model_is_refused(tmp_path: Path) -> None:
    true = made_by_us.true_profile(decode=0.3, prefill=0.3)
    paths = made_by_us.write_rates(tmp_path / "fast", true)
    with pytest.raises(InputError, match="another GPU, model or precision"):
        fit(paths)
    with pytest.raises(InputError, match="another GPU, model or precision"):
        fit(paths, fit_steps=False)
    paths = made_by_us.write_rates(tmp_path / "own", made_by_us.true_profile())
    with pytest.raises(InputError, match="another GPU, model or precision"):
        fit(paths, base=load_profile("llama-3.1-70b-bf16-tp4-h100"))


def test_a_profile_without_overheads_gets_some(tmp_path: Path) -> None:
    paths = made_by_us.write_rates(tmp_path, made_by_us.true_profile())
    base = made_by_us.base()
    none = HostWork(fitted_seqs=128)
    records = tuple(r.model_copy(update={"work": none}) for r in base.host_work)
    api = base.api_server.model_copy(
        update=dict.fromkeys(("latency_s", "per_request_s", "per_prompt_token_s"), 0.0)
    )
    bare = base.model_copy(update={"host_work": records, "api_server": api})
    found = fit_bench(read_bench_runs(paths), bare, made_by_us.settings())
    for score in found.scores:
        assert abs(score.after.error("TPOT")) < 0.03
        assert abs(score.after.error("TTFT")) < 0.04


@pytest.mark.slow
def test_equal_input_gives_equal_files(tmp_path: Path) -> None:
    paths = made_by_us.write_rates(tmp_path, made_by_us.true_profile(), rates=(4.0, 12.0))
    assert fit(paths).profile.to_json() == fit(paths[::-1]).profile.to_json()


def test_a_closed_loop_is_replayed_as_one(tmp_path: Path) -> None:
    result = made_by_us.made(8.0, made_by_us.true_profile()) | {
        "max_concurrency": 4,
        "request_rate": "inf",
    }
    run = read_run(made_by_us.write(tmp_path / "c4.json", result))
    simulated = replay_as_sent(run, made_by_us.true_profile(), made_by_us.settings())
    end_s = simulated.sent_s + simulated.e2e_s
    most = max(
        int(((simulated.sent_s <= s) & (end_s > s)).sum()) for s in simulated.sent_s.tolist()
    )
    assert most == 4
    assert in_flight(run) > 8


def ms(result: Result) -> None:
    result["ttfts"] = [1e3 * ttft for ttft in result["ttfts"]]
    result["mean_ttft_ms"] = float(np.mean(result["ttfts"]))


def ms_everywhere(result: Result) -> None:
    for key in ("ttfts", "start_times"):
        result[key] = [1e3 * value for value in result[key]]
    result["itls"] = [[1e3 * gap for gap in gaps] for gaps in result["itls"]]


def no_lists(result: Result) -> None:
    for key in ("ttfts", "itls", "start_times", "input_lens", "output_lens"):
        del result[key]


def half_failed(result: Result) -> None:
    result["errors"] = ["Bad Gateway", ""] * (len(result["errors"]) // 2)


def few(result: Result) -> None:
    for key in ("ttfts", "itls", "start_times", "input_lens", "output_lens", "errors"):
        result[key] = result[key][:10]
    del result["duration"]


def chunky(result: Result) -> None:
    result["itls"] = [
        [sum(gaps[i : i + 4]) for i in range(0, len(gaps), 4)] for gaps in result["itls"]
    ]


def one_token(result: Result) -> None:
    result["output_lens"] = [1] * len(result["output_lens"])
    result["itls"] = [[] for _ in result["itls"]]
    del result["duration"]


def bad(key: str, value: Any) -> Callable[[Result], None]:
    return lambda result: result.update({key: value})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (ms, "itls|ttfts come to|start_times and times come to"),
        (ms_everywhere, "start_times and times come to"),
        (no_lists, "start_times: this list is missing; record with"),
        (half_failed, "100 of 200 requests failed"),
        (few, "10 requests are too few"),
        (chunky, r"\d tokens came in a chunk: speculative decoding or --stream-interval"),
        (one_token, "every answer is one token"),
        (bad("request_rate", -1), "request_rate is -1"),
        (bad("request_rate", "fast"), "request_rate is 'fast'"),
        (bad("burstiness", 0), "burstiness is 0"),
        (bad("max_concurrency", 0), "max_concurrency is 0"),
        (bad("max_concurrency", 2.5), "max_concurrency is 2.5"),
        (bad("model_id", 3), "model_id is 3"),
        (bad("spec_decode_acceptance_rate", 50.0), "speculative decoding"),
        (bad("tensor_parallel_size", "two"), "tensor_parallel_size is 'two'"),
        (bad("queue_times", [0.0]), "queue_times differ"),
    ],
)
def test_results_that_cannot_be_fitted_are_refused(
    tmp_path: Path, spoil: Callable[[Result], None], message: str
) -> None:
    result = made_by_us.made(8.0, made_by_us.true_profile())
    spoil(result)
    path = made_by_us.write(tmp_path / "bench.json", result)
    with pytest.raises(InputError, match=message) as refused:
        read_bench_runs([path])
    assert "\n" not in str(refused.value)


def test_milliseconds_without_totals_are_refused_by_the_fit(tmp_path: Path) -> None:
    result = made_by_us.made(8.0, made_by_us.true_profile())
    result["itls"] = [[1e3 * gap for gap in gaps] for gaps in result["itls"]]
    result["ttfts"] = [1e3 * ttft for ttft in result["ttfts"]]
    del result["duration"]
    with pytest.raises(InputError, match="are its times in seconds"):
        fit([made_by_us.write(tmp_path / "bench.json", result)])


def test_damaged_and_mixed_files_are_refused(tmp_path: Path) -> None:
    first, second = made_by_us.write_rates(tmp_path, made_by_us.true_profile(), rates=(2.0, 8.0))
    with pytest.raises(InputError, match="is the same run as"):
        read_bench_runs([first, first])
    other = json.loads(second.read_text()) | {"model_id": "org/Other-8B"}
    made_by_us.write(second, other)
    with pytest.raises(InputError, match=r"model_id is 'org/Other-8B', but 'meta-llama"):
        read_bench_runs([first, second])
    whole = first.read_text()
    first.write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is cut off or damaged"):
        read_bench_runs([first])
    first.write_text(whole + "\n" + whole)
    with pytest.raises(InputError, match=r"holds 2 results \(--append-result\)"):
        read_bench_runs([first])


def test_gaps_that_are_not_between_tokens_are_not_compared(tmp_path: Path) -> None:
    result = made_by_us.made(8.0, made_by_us.true_profile())
    assert read_run(made_by_us.write(tmp_path / "a.json", result)).itl_s is not None
    # the chat endpoint sends a chunk with the role beside the first token
    roles = result | {"itls": [[1e-6, *gaps] for gaps in result["itls"]]}
    run = read_run(made_by_us.write(tmp_path / "b.json", roles))
    assert run.itl_s is None
    assert "100% of the answers have more or fewer chunks" in run.remarks[0]
    together = result | {
        "itls": [
            [g * (2.0 if i % 2 else 0.0) for i, g in enumerate(gaps)] for gaps in result["itls"]
        ]
    }
    run = read_run(made_by_us.write(tmp_path / "c.json", together))
    assert run.itl_s is None
    assert "of the chunks reached the client together" in run.remarks[0]
