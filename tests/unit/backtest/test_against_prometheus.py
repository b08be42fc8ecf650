"""A fleet against exports of itself, of slower, smaller and other ones."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fleetsim.sim.backtest.against_prometheus import (
    PrometheusCheck,
    check_against_prometheus,
    trace_start_s,
)
from fleetsim.sim.backtest.premises import Tolerances
from fleetsim.sim.backtest.prometheus_dump import (
    ITL,
    KV_USAGE,
    PREFIX_HITS,
    PREFIX_QUERIES,
    TTFT,
    WAITING,
    Dump,
    Series,
    read_dump,
)
from fleetsim.sim.backtest.prometheus_report import check_json
from fleetsim.sim.backtest.verdict import CANNOT_TELL, DO_NOT_TRUST, TRUST
from fleetsim.traces import load_sample, load_trace
from fleetsim.traces.errors import InputError

from . import fleets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fleet")
    fleets.write_scenario(path)
    return path


@pytest.fixture(scope="module")
def own(folder: Path) -> Dump:
    return fleets.export(folder)


def checked(folder: Path, dump: Dump, *changes: str, start: str = fleets.START) -> PrometheusCheck:
    return check_against_prometheus(dump, fleets.scenario(folder, *changes), trace_start=start)


def verdicts(result: PrometheusCheck) -> dict[str, str]:
    return {metric.title: metric.verdict for metric in result.check.metrics}


def altered(dump: Dump, metric: str, change: Callable[[Series], Series]) -> Dump:
    series = dict(dump.series)
    series[metric] = {labels: change(one) for labels, one in series[metric].items()}
    return Dump("altered", series)


@pytest.mark.parametrize("write", [fleets.write_openmetrics, fleets.write_answer])
def test_a_fleet_is_trusted_against_its_own_export(
    folder: Path, own: Dump, write: Callable[[Path, Dump], Path], tmp_path: Path
) -> None:
    result = checked(folder, read_dump(write(tmp_path / "export", own)))
    assert result.check.comparable
    assert set(verdicts(result).values()) == {TRUST}
    assert len(result.check.metrics) == 8
    for metric in result.check.metrics:
        for statistic in metric.statistics:
            assert statistic.measured == pytest.approx(statistic.simulated, rel=1e-9)
            assert statistic.measured > 0
    assert result.remarks == ()


def test_a_slower_fleet_is_not(folder: Path) -> None:
    fleets.write_profile(folder / "slower.json", 1.3)
    slower = fleets.export(folder, f"pools.chat.profile={folder / 'slower.json'}")
    result = checked(folder, slower)
    found = verdicts(result)
    assert result.check.comparable
    assert found["TTFT"] == found["ITL"] == found["running"] == DO_NOT_TRUST
    assert found["KV usage"] == CANNOT_TELL  # hardly used at all
    assert found["output tokens"] == TRUST  # as many come out as are asked for
    itl = next(metric for metric in result.check.metrics if metric.key == ITL)
    assert -0.35 < itl.statistics[0].error < -0.2
    assert "beyond any sampling error" in itl.reason


def test_a_smaller_fleet_is_not_and_that_comes_first(folder: Path) -> None:
    smaller = fleets.export(folder, "pools.chat.replicas=2")
    result = checked(folder, smaller)
    assert set(verdicts(result).values()) == {DO_NOT_TRUST}
    failed = [premise.name for premise in result.check.premises if not premise.holds]
    assert failed == ["replicas"]
    assert all(
        metric.reason == "not comparable: replicas differ" for metric in result.check.metrics
    )


def test_other_prompts_are_not(folder: Path) -> None:
    fleets.write_trace(folder / "other.csv", seed=4)
    text = (folder / "other.csv").read_text().splitlines()
    longer = [text[0]]
    for line in text[1:]:
        arrival, prompt, output, *_ = line.split(",")
        longer.append(f"{arrival},{int(prompt) + 100},{output},,16")
    (folder / "other.csv").write_text("\n".join(longer) + "\n")
    other = fleets.export(folder, f"workload.trace={folder / 'other.csv'}")
    result = checked(folder, other)
    failed = [premise.name for premise in result.check.premises if not premise.holds]
    assert "prompt tokens per request" in failed
    assert set(verdicts(result).values()) == {DO_NOT_TRUST}


def test_fewer_arrivals_are_not(folder: Path, own: Dump) -> None:
    half = fleets.write_trace(folder / "half.csv")
    lines = half.read_text().splitlines()
    half.write_text("\n".join([lines[0], *lines[1::2]]) + "\n")
    result = checked(folder, own, f"workload.trace={half}")
    failed = [premise.name for premise in result.check.premises if not premise.holds]
    assert "arrivals" in failed
    assert set(verdicts(result).values()) == {DO_NOT_TRUST}


def test_a_queue_that_grows_does_not_hide_arrivals(folder: Path) -> None:
    """A measured fleet that falls behind had the same arrivals, and fewer first tokens."""
    profile = fleets.write_profile(folder / "overloaded.json", 3.0)
    changes = (f"pools.chat.profile={profile}", "pools.chat.engine.max_num_seqs=1")
    slow = fleets.export(folder, *changes, "measurement.horizon_s=500")
    result = checked(folder, slow, "measurement.horizon_s=500")
    arrivals = next(p for p in result.check.premises if p.name == "arrivals")
    counts = [f.histograms[TTFT].counts[-1] for f in (result.measured, result.simulated)]
    assert counts[0] < 0.9 * counts[1]
    assert arrivals.holds


def test_a_wrong_start_is_found(folder: Path, own: Dump) -> None:
    result = checked(folder, own, start=str(fleets.START_S + 40.0))
    failed = {premise.name: premise for premise in result.check.premises if not premise.holds}
    assert (
        "come 40 s before the trace's; check --trace-start" in failed["arrivals over time"].reason
    )
    assert set(verdicts(result).values()) == {DO_NOT_TRUST}


def test_tolerances_are_those_that_were_given(folder: Path) -> None:
    fleets.write_profile(folder / "little.json", 1.06)
    little = fleets.export(folder, f"pools.chat.profile={folder / 'little.json'}")
    scenario = fleets.scenario(folder)

    def verdict(tolerance: float) -> str:
        result = check_against_prometheus(
            little, scenario, trace_start=fleets.START, tolerances=Tolerances(mean=tolerance)
        )
        return verdicts(result)["ITL"]

    assert (verdict(0.10), verdict(0.02)) == (TRUST, DO_NOT_TRUST)


def test_what_the_export_lacks_cannot_be_told(folder: Path, own: Dump) -> None:
    kept = {k: v for k, v in own.series.items() if k not in (PREFIX_QUERIES, PREFIX_HITS)}
    result = checked(folder, Dump("less", kept))
    assert verdicts(result) | {"prefix hit rate": TRUST} == {
        metric.title: TRUST for metric in result.check.metrics
    }
    assert verdicts(result)["prefix hit rate"] == CANNOT_TELL
    json.dumps(check_json(result), allow_nan=False)


def test_a_queue_is_said_to_hide_the_engine(folder: Path) -> None:
    few = "pools.chat.engine.max_num_seqs=1"
    result = checked(folder, fleets.export(folder, few), few)
    ttft = result.check.metrics[0]
    assert (ttft.key, ttft.verdict) == (TTFT, TRUST)
    assert "this is the queue more than the engine" in ttft.reason


def test_a_lead_is_asked_for_and_used(folder: Path, own: Dump) -> None:
    late = altered_start(own, 120.0)
    assert "starts empty" in checked(folder, late).remarks[0]
    result = checked(folder, own, "measurement.warm_up_s=120")
    assert result.window.start_s == fleets.START_S + 120.0
    assert result.remarks == ()
    assert set(verdicts(result).values()) == {TRUST}


def altered_start(dump: Dump, cut_s: float) -> Dump:
    series = {
        metric: {
            labels: Series(
                one.times_s[one.times_s >= fleets.START_S + cut_s],
                one.values[one.times_s >= fleets.START_S + cut_s],
            )
            for labels, one in by_labels.items()
        }
        for metric, by_labels in dump.series.items()
    }
    return Dump("late", series)


def milliseconds(dump: Dump) -> Dump:
    series = dict(dump.series)
    series[ITL + "_sum"] = {
        labels: Series(one.times_s, one.values * 1e3)
        for labels, one in dump.of(ITL + "_sum").items()
    }
    series[ITL + "_bucket"] = {
        tuple((k, str(float(v) * 1e3) if k == "le" else v) for k, v in labels): one
        for labels, one in dump.of(ITL + "_bucket").items()
    }
    return Dump("in ms", series)


def test_other_units_are_refused(folder: Path, own: Dump) -> None:
    percent = altered(own, KV_USAGE, lambda one: Series(one.times_s, one.values * 100))
    with pytest.raises(InputError, match=r"altered: vllm:kv_cache_usage_perc is \d.*0 to 1"):
        checked(folder, percent)
    with pytest.raises(InputError, match=r"in ms: by vllm:inter_token_latency_seconds_sum"):
        checked(folder, milliseconds(own))
    large = altered(own, TTFT + "_bucket", lambda one: one)
    large.series[TTFT + "_bucket"] = {
        tuple((k, "2560000.0" if (k, v) == ("le", "10.0") else v) for k, v in labels): one
        for labels, one in own.of(TTFT + "_bucket").items()
    }
    with pytest.raises(InputError, match=r"le=2\.56e\+06; in seconds that is hours"):
        checked(folder, large)


def test_an_idle_time_is_refused(folder: Path, own: Dump) -> None:
    idle = {
        metric: {k: Series(one.times_s, np.zeros(len(one.values))) for k, one in series.items()}
        for metric, series in own.series.items()
    }
    with pytest.raises(InputError, match="no request got a token"):
        checked(folder, Dump("idle", idle))


def test_models_are_told_apart(folder: Path, own: Dump) -> None:
    both = Dump("both", {})
    for metric, series in own.series.items():
        other = {
            tuple((k, "other/model" if k == "model_name" else v) for k, v in labels): Series(
                one.times_s, one.values * 0.5
            )
            for labels, one in series.items()
        }
        both.series[metric] = {**series, **other}
    with pytest.raises(InputError, match="models org/model, other/model; --model is needed"):
        checked(folder, both)
    scenario = fleets.scenario(folder)
    result = check_against_prometheus(both, scenario, trace_start=fleets.START, model=fleets.MODEL)
    assert set(verdicts(result).values()) == {TRUST}
    with pytest.raises(InputError, match="--model mine: is not in it"):
        check_against_prometheus(both, scenario, trace_start=fleets.START, model="mine")
    torn = Dump("torn", {**both.series, WAITING: own.of(WAITING)})
    with pytest.raises(InputError, match="torn: vllm:num_requests_waiting not with model_name"):
        check_against_prometheus(torn, scenario, trace_start=fleets.START, model="other/model")
    named = checked(folder, own, "pools.chat.model=served")
    assert named.remarks == ("the export's model org/model is taken to be served",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("workload.time_scale=2", "has time_scale 2"),
        ("workload.closed_loop={concurrency: 4}", "is a closed loop"),
    ],
)
def test_only_what_happened_can_be_compared(
    folder: Path, own: Dump, change: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        checked(folder, own, change)


@pytest.mark.parametrize(
    ("text", "start_s"),
    [
        ("2025-11-24T16:00:00Z", fleets.START_S),
        ("2025-11-24 17:00:00+01:00", fleets.START_S),
        ("1764000000", fleets.START_S),
        ("1764000000.25", fleets.START_S + 0.25),
    ],
)
def test_a_start_is_read(text: str, start_s: float) -> None:
    assert trace_start_s(text, load_sample(), "t") == start_s


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2025-11-24T16:00:00", "has no time zone"),
        ("1764000000000", "is not in seconds since 1970"),
        ("nan", "is not in seconds"),
        ("Tuesday", "is not a time"),
        (None, "does not say when its first request arrived; give --trace-start"),
    ],
)
def test_a_start_that_is_none_is_refused(text: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace_start_s(text, load_sample(), "t")


def test_a_trace_that_knows_its_start_needs_no_option(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    path.write_text(head + "2025-11-24 16:00:00.500000+00:00,10,5\n")
    assert trace_start_s(None, load_trace(path), "azure.csv") == fleets.START_S + 0.5
    path.write_text(head + "2025-11-24 16:00:00.5000000,10,5\n")
    with pytest.raises(InputError, match=r"azure\.csv starts at .*has no time zone"):
        trace_start_s(None, load_trace(path), "azure.csv")


def test_a_replaced_pod_is_no_further_replica(folder: Path, own: Dump) -> None:
    """One pod goes and another takes its place: three at a time, as the scenario has."""
    half = len(next(iter(own.of(KV_USAGE).values())).times_s) // 2
    series: dict[str, dict[tuple[tuple[str, str], ...], Series]] = {}
    for metric, by_labels in own.series.items():
        for labels, one in by_labels.items():
            if ("instance", "chat-2") not in labels:
                series.setdefault(metric, {})[labels] = one
                continue
            new = tuple((k, "chat-9" if v == "chat-2" else v) for k, v in labels)
            series.setdefault(metric, {})[labels] = Series(one.times_s[:half], one.values[:half])
            series[metric][new] = Series(one.times_s[half:], one.values[half:])
    result = checked(folder, Dump("replaced", series))
    assert result.check.premises[0].holds
    assert [remark[:6] for remark in result.remarks] == ["chat-2", "chat-9"]
    assert verdicts(result)["ITL"] == TRUST


def test_scrapes_at_other_moments_are_no_other_fleet(folder: Path) -> None:
    """Prometheus scrapes each replica at a moment of its own, and a little late at times."""
    fine = fleets.export(folder, interval_s=0.5)
    rng = np.random.default_rng(5)
    series: dict[str, dict[tuple[tuple[str, str], ...], Series]] = {}
    picks: dict[str, np.ndarray] = {}
    for metric, by_labels in fine.series.items():
        for labels, one in by_labels.items():
            instance = dict(labels)["instance"]
            if instance not in picks:
                grid = np.arange(2 + 3 * len(picks), len(one.times_s) - 1, 10)
                picks[instance] = grid + (rng.random(len(grid)) < 0.1)
            pick = picks[instance]
            times_s = one.times_s[pick] + 0.0004
            series.setdefault(metric, {})[labels] = Series(times_s, one.values[pick])
    result = checked(folder, Dump("jittered", series))
    assert result.check.comparable
    assert result.window.interval_s == 5.0
    found = verdicts(result)
    assert found["TTFT"] == found["ITL"] == found["prefix hit rate"] == TRUST
    assert DO_NOT_TRUST not in found.values()
    assert all(abs(m.statistics[0].error) < 0.02 for m in result.check.metrics[:2])
