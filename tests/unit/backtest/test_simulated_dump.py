"""What a simulated fleet would have exported: exact, and the run is the one without scrapes."""

from pathlib import Path

import numpy as np
import pytest

from fleetsim.sim.backtest.prometheus_dump import (
    GENERATION_TOKENS,
    ITL,
    PREFIX_HITS,
    PREFIX_QUERIES,
    PROMPT_TOKENS,
    RUNNING,
    SUCCESS,
    TTFT,
    Dump,
)
from fleetsim.sim.backtest.simulated_dump import ScrapedFleet
from fleetsim.sim.clock import Clock
from fleetsim.sim.engine.decode_run import DecodeRun
from fleetsim.sim.engine.timed_step_log import TimedStepLog
from fleetsim.sim.results.result import Result
from fleetsim.sim.simulate import Simulation, simulate

from . import fleets

CROWDED = (
    "pools.chat.engine.num_gpu_blocks_override=130",
    "pools.chat.engine.max_model_len=1100",
    "workload.max_tokens=output",
    "pools.chat.engine.scheduler_reserve_full_isl=false",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fleet")
    fleets.write_scenario(path)
    return path


def scraped(folder: Path, *changes: str) -> tuple[Dump, Result]:
    """The dump and the run."""
    fleet = ScrapedFleet(fleets.scenario(folder, *changes), fleets.INTERVAL_S)
    result = fleet.run()
    return fleet.dump(["chat"], fleets.MODEL, fleets.START_S, fleets.BOUNDS_S), result


def last(dump: Dump, metric: str) -> float:
    return sum(float(series.values[-1]) for series in dump.of(metric).values())


def until(result: Result, column: str, time_s: float) -> np.ndarray:
    return (result.requests()[column] <= time_s).to_numpy()


@pytest.mark.parametrize("changes", [(), CROWDED])
def test_counters_are_sums_over_the_requests(folder: Path, changes: tuple[str, ...]) -> None:
    dump, result = scraped(folder, *changes)
    requests = result.requests()
    end_s = float(result.timeline()["t_s"].max())
    if changes:
        assert requests["preemptions"].sum() > 20, "no gap across a preemption is tested"
    first = requests[until(result, "first_token_s", end_s)]
    began = requests[until(result, "scheduled_s", end_s)]
    ended = requests[until(result, "last_token_s", end_s)]
    assert last(dump, TTFT + "_count") == len(first)
    assert last(dump, TTFT + "_sum") == pytest.approx(first["engine_ttft_s"].sum())
    assert last(dump, PROMPT_TOKENS) == first["prompt_tokens"].sum()
    assert last(dump, PREFIX_QUERIES) == began["prompt_tokens"].sum()
    assert last(dump, PREFIX_HITS) == began["cached_tokens"].sum() > 0
    assert last(dump, SUCCESS) == len(ended)
    # All but those still decoding have had all their gaps: tokens less one, from first to last.
    open_tokens = (requests["output_tokens"] - 1).sum() - (ended["output_tokens"] - 1).sum()
    gaps = last(dump, ITL + "_count") - (ended["output_tokens"] - 1).sum()
    assert 0 <= gaps <= open_tokens
    spans = ended["last_token_s"] - ended["first_token_s"]
    open_s = len(requests) - len(ended)
    assert 0 <= last(dump, ITL + "_sum") - spans.sum() + 1e-6 <= open_s * fleets.INTERVAL_S * 9
    assert last(dump, GENERATION_TOKENS) == last(dump, TTFT + "_count") + last(dump, ITL + "_count")


@pytest.mark.parametrize("changes", [(), CROWDED])
def test_every_gap_is_counted_once(folder: Path, changes: tuple[str, ...]) -> None:
    """Over the whole run gaps sum to the requests' time from first to last token."""
    fleet = ScrapedFleet(fleets.scenario(folder, *changes), fleets.INTERVAL_S)
    requests = fleet.run().requests()
    itl = fleet.latencies(["chat"], 0.0, np.inf)[ITL]
    assert itl.count == (requests["output_tokens"] - 1).sum()
    spans = requests["last_token_s"] - requests["first_token_s"]
    assert itl.sum_s == pytest.approx(spans.sum(), rel=1e-9)


def test_buckets_hold_what_the_requests_say(folder: Path) -> None:
    dump, result = scraped(folder)
    requests = result.requests()
    end_s = float(result.timeline()["t_s"].max())
    middle = len(next(iter(dump.of(RUNNING).values())).times_s) // 2
    time_s = float(next(iter(dump.of(RUNNING).values())).times_s[middle]) - fleets.START_S
    assert time_s < end_s
    for number in range(3):
        mine = requests[(requests["replica"] == number) & (requests["first_token_s"] <= time_s)]
        for labels, series in dump.of(TTFT + "_bucket").items():
            if ("instance", f"chat-{number}") in labels:
                bound_s = float(dict(labels)["le"])
                assert series.values[middle] == (mine["engine_ttft_s"] <= bound_s).sum()


def test_scrapes_change_nothing(folder: Path) -> None:
    """The same requests and gauges, bit by bit, as a run that nobody looks at."""
    _, result = scraped(folder)
    plain = simulate(fleets.scenario(folder, f"results.sample_interval_s={fleets.INTERVAL_S}"))
    assert result.content_hash() == plain.content_hash()


def test_leaps_change_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_leaps, _ = scraped(folder)
    init = Simulation.__init__
    monkeypatch.setattr(Simulation, "__init__", lambda *given: init(*given, leaps=False))
    without, _ = scraped(folder)
    assert with_leaps.series.keys() == without.series.keys()
    for metric, by_labels in with_leaps.series.items():
        for labels, series in by_labels.items():
            other = without.series[metric][labels].values
            if metric.endswith("_sum"):  # added up in another order
                assert np.allclose(series.values, other, rtol=1e-12)
            else:
                assert np.array_equal(series.values, other), (metric, labels)


def test_each_replica_has_its_own_gaps(folder: Path) -> None:
    """At a scrape that finds a replica idle, each of its requests has had all its gaps."""
    dump, result = scraped(folder, *CROWDED)
    requests, timeline = result.requests(), result.timeline()
    for number in range(3):
        samples = timeline[timeline["replica"] == number].reset_index()
        idle = samples[(samples["running"] == 0) & (samples["waiting"] == 0)].index[-1]
        ended = requests[
            (requests["replica"] == number) & (requests["last_token_s"] <= samples["t_s"][idle])
        ]
        assert ended["preemptions"].sum() > 10
        count = next(
            series.values[idle]
            for labels, series in dump.of(ITL + "_count").items()
            if ("instance", f"chat-{number}") in labels
        )
        assert count == (ended["output_tokens"] - 1).sum()


def test_a_step_log_knows_when_each_step_ended() -> None:
    clock = Clock()
    log = TimedStepLog(clock, lambda durations_s, n_decodes: None)
    clock.now = 3.0
    log.add_step(0.5, 7)
    # flat for three steps, where the host is slower, then a little longer from step to step
    run = DecodeRun(10.0, 4, 1000, (0.001, 1e-5, 0.0111, 0.002))
    assert 0 < run.n_flat < 10
    log.add_run(run, 40)
    ((ended_s, took_s, n_decodes),) = log.steps()
    assert ended_s[0] == 3.5
    assert np.allclose(ended_s[1:], [run.end_s(k) for k in range(1, 41)], rtol=0, atol=1e-12)
    assert np.allclose(took_s[1:], np.diff([run.end_s(k) for k in range(41)]), rtol=0, atol=1e-12)
    assert took_s[-1] > 1.05 * took_s[1]
    assert n_decodes.tolist() == [7] + [4] * 40
