"""Windows, counters, gauges and buckets of a fleet."""

import numpy as np
import pytest

from fleetsim.sim.backtest.fleet_series import (
    Histogram,
    Window,
    common_window,
    fleet_series,
)
from fleetsim.sim.backtest.prometheus_dump import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    KV_USAGE,
    PROMPT_TOKENS,
    RUNNING,
    TTFT,
    Dump,
    Labels,
    Series,
)
from fleetsim.traces.errors import InputError

START_S = 1_764_000_000.0
TIMES_S = START_S + 10.0 * np.arange(41)
WINDOW = Window(START_S, START_S + 400.0, 10.0)
RISING = 3.0 * np.arange(41)


def replica(number: int) -> Labels:
    return (("engine", "0"), ("pod", f"vllm-{number}"))


def dump(replicas: int = 2) -> Dump:
    """Gauges at 0.5, counters and buckets that rise by 3 a scrape; ten seconds apart."""
    made = Dump("made", {})
    for number in range(replicas):
        for name in GAUGES:
            put(made, name, replica(number), np.full(41, 0.5))
        for name in (*COUNTERS, *(h + part for h in HISTOGRAMS for part in ("_sum", "_count"))):
            put(made, name, replica(number), RISING)
        for name in HISTOGRAMS:
            for le, factor in (("0.1", 1.0), ("0.5", 2.0), ("+Inf", 3.0)):
                put(made, name + "_bucket", with_le(number, le), RISING * factor)
    return made


def with_le(number: int, le: str) -> Labels:
    return tuple(sorted((*replica(number), ("le", le))))


def put(made: Dump, metric: str, labels: Labels, values: object, times_s: object = TIMES_S) -> None:
    one = Series(np.asarray(times_s, dtype=np.float64), np.asarray(values, dtype=np.float64))
    made.series.setdefault(metric, {})[labels] = one


def test_replicas_add_up_and_kv_usage_is_their_mean() -> None:
    fleet = fleet_series(dump(), WINDOW)
    assert set(fleet.replicas) == {2}
    assert fleet.counters[PROMPT_TOKENS][-1] == 2 * 120
    assert fleet.gauges[RUNNING].tolist() == [1.0] * 41
    assert fleet.gauges[KV_USAGE].tolist() == [0.5] * 41
    assert fleet.histograms[TTFT].cumulative[-1].tolist() == [240, 480, 720]
    assert fleet.remarks == ()


def test_a_counter_between_two_scrapes_rises_evenly() -> None:
    between = Window(START_S + 5.0, START_S + 395.0, 10.0)
    assert fleet_series(dump(1), between).counters[PROMPT_TOKENS][-1] == pytest.approx(117.0)


def test_a_restart_counts_from_zero_and_is_told() -> None:
    made = dump(1)
    values = np.r_[RISING[:20], 1.0 + RISING[:21]]
    for metric in (PROMPT_TOKENS, TTFT + "_count"):
        put(made, metric, replica(0), values)
    fleet = fleet_series(made, WINDOW)
    assert fleet.counters[PROMPT_TOKENS][-1] == 57.0 + 1.0 + 60.0
    assert len(fleet.remarks) == 1
    assert "vllm-0 restarted before 2025-11-24T16:03:20Z" in fleet.remarks[0]


def test_gaps_are_left_out_and_told() -> None:
    made = dump(2)
    kept = np.r_[0:10, 20:41]
    put(made, RUNNING, replica(0), np.full(41, 0.5)[kept], TIMES_S[kept])
    stale = np.full(41, 0.5)
    stale[30:33] = np.nan
    put(made, RUNNING, replica(1), stale)
    fleet = fleet_series(made, WINDOW)
    missing = np.flatnonzero(np.isnan(fleet.gauges[RUNNING])).tolist()
    # a sample serves for two and a half intervals, a stale marker ends it at once
    assert missing == [*range(12, 20), 30, 31, 32]
    assert "vllm-0 has 1 gaps, 110 s" in fleet.remarks[0]


def test_a_replica_that_comes_late_is_told_and_counts_from_then() -> None:
    made = dump(2)
    late = slice(25, None)
    for series in made.series.values():
        for labels, one in series.items():
            if ("pod", "vllm-1") in labels:
                series[labels] = Series(one.times_s[late], one.values[late])
    fleet = fleet_series(made, WINDOW)
    assert fleet.replicas.tolist() == [1] * 25 + [2] * 16
    assert fleet.gauges[RUNNING].tolist() == [0.5] * 25 + [1.0] * 16
    assert fleet.gauges[KV_USAGE].tolist() == [0.5] * 41
    assert fleet.counters[PROMPT_TOKENS][-1] == 120 + 45
    assert fleet.remarks == ("vllm-1 begins at 2025-11-24T16:04:10Z, in the middle of the window",)


def test_quantiles_are_those_of_promql() -> None:
    """histogram_quantile(q, ...) of counts 20, 60, 18, 2 below 0.1, 0.5, 2 and above."""
    histogram = Histogram(
        np.array([0.1, 0.5, 2.0, np.inf]),
        np.array([[0.0, 0, 0, 0], [20.0, 80, 98, 100]]),
        np.array([0.0, 50.0]),
    )
    assert histogram.quantile_s(0.1) == pytest.approx(0.05)
    assert histogram.quantile_s(0.5) == pytest.approx(0.1 + 0.4 * 30 / 60)
    assert histogram.quantile_s(0.9) == pytest.approx(0.5 + 1.5 * 10 / 18)
    assert histogram.quantile_s(0.99) == 2.0
    assert histogram.mean_s == 0.5
    assert histogram.edges_s(histogram.bucket(0.8)) == (0.1, 0.5)


def test_the_window_is_what_both_cover_on_the_simulated_scrapes() -> None:
    made = dump()
    window = common_window(made, "t.csv", START_S + 3.0, 60.0, 1000.0)
    assert (window.start_s, window.end_s) == (START_S + 63.0, START_S + 393.0)
    assert window.edges.tolist() == [0, 3, 7, 10, 13, 16, 20, 23, 26, 30, 33]


@pytest.mark.parametrize(
    ("trace_start_s", "how"), [(START_S + 3600, "do not overlap"), (START_S + 250, "15 scrapes")]
)
def test_windows_apart_are_both_stated(trace_start_s: float, how: str) -> None:
    with pytest.raises(InputError, match=how) as caught:
        common_window(dump(), "t.csv", trace_start_s, 0.0, 900.0)
    message = str(caught.value)
    assert "made covers 2025-11-24T16:00:00Z to 2025-11-24T16:06:40Z" in message
    assert "t.csv 2025-11-24T1" in message
    assert "--trace-start" in message


def drop_inf(made: Dump) -> None:
    del made.series[TTFT + "_bucket"][with_le(0, "+Inf")]


def uneven(made: Dump) -> None:
    del made.series[TTFT + "_bucket"][with_le(1, "0.5")]


def falling(made: Dump) -> None:
    put(made, TTFT + "_bucket", with_le(1, "0.5"), RISING * 0.5)


def no_sum(made: Dump) -> None:
    del made.series[TTFT + "_sum"][replica(1)]


def no_number(made: Dump) -> None:
    put(made, TTFT + "_bucket", with_le(1, "fast"), RISING)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_inf, r'_bucket of vllm-0 has no le="\+Inf"'),
        (uneven, "_bucket of vllm-1 has other bounds le"),
        (falling, "_bucket of vllm-1 is not cumulative: le=0.5 rose by 60, le=0.1 by 120"),
        (no_sum, "_sum of vllm-1 is missing"),
        (no_number, "le='fast'"),
    ],
)
def test_broken_histograms_are_refused(damage: object, message: str) -> None:
    made = dump()
    damage(made)  # type: ignore[operator]
    with pytest.raises(InputError, match=message):
        fleet_series(made, WINDOW)
