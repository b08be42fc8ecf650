"""The table says what the summary says; the figures draw it, and draw it without global state."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from rich.console import Console

from fleetsim.sim.report.format import DASH, bound, digits, dollars, percent, seconds
from fleetsim.sim.report.plots import latency_figure, timeline_figure
from fleetsim.sim.report.table import summary_table
from fleetsim.sim.request import Journey
from fleetsim.sim.results.finish import finish
from fleetsim.sim.results.recorder import Recorder, Status
from fleetsim.sim.results.result import Result

from .fake_run import fake_facts, fake_journeys, record
from .test_slo import ASlo, Bounds, Target

SLO = ASlo(
    percentiles=(
        Target("client_ttft_s", 50, 0.3),
        Target("client_ttft_s", 99, 1.0, 2048),
        Target("tpot_s", 90, 0.05),
    ),
    per_request=Bounds(client_ttft_s=1.0, tpot_s=0.05),
)


def run(
    journeys: list[Journey], slo: ASlo = SLO, samples: int = 20, status: Status = "complete"
) -> Result:
    recorder = Recorder(None)
    record(recorder, journeys, samples=samples)
    return finish(recorder, fake_facts(journeys), slo, status)


def all_rejected(n: int = 20) -> list[Journey]:
    rejected = []
    for j in fake_journeys(n):
        refused = Journey(j.request, j.output_tokens, False, False)
        refused.outcome, refused.reason, refused.ended_s = "rejected", "", j.arrived_s
        rejected.append(refused)
    return rejected


def write_figures(result: Result, folder: Path) -> list[Path]:
    paths = []
    for name, figure in (("latency", latency_figure), ("timeline", timeline_figure)):
        paths.append(folder / f"{name}.png")
        figure(result).savefig(paths[-1])
    return paths


@pytest.fixture(scope="module")
def result() -> Result:
    return run(fake_journeys(600))


def printed(result: Result, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(summary_table(result))
    return capture.get()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (seconds(None), DASH),
        (seconds(0.0831), "83.1 ms"),
        (seconds(0.99996), "1.00 s"),
        (seconds(0.9994), "999 ms"),
        (seconds(412.3), "412 s"),
        (seconds(2.5e-5), "25.0 µs"),
        (digits(1234567.0), "1,234,567"),
        (digits(0.01234), "0.0123"),
        (digits(0.0), "0"),
        (digits(9.999), "10.0"),
        (percent(None), DASH),
        (percent(1.0), "100 %"),
        (percent(0.99999), ">99.9 %"),
        (percent(0.996, 2), ">99 %"),
        (percent(0.413), "41.3 %"),
        (percent(0.0), "0 %"),
        (dollars(None), DASH),
        (dollars(12.345), "$12.35"),
        (dollars(0.1234), "$0.12"),
        (bound(0.3), "300 ms"),
        (bound(1.0), "1 s"),
    ],
)
def test_numbers_read_well(text: str, expected: str) -> None:
    assert text == expected


def test_the_table_fits_80_columns_and_one_screen(result: Result) -> None:
    lines = printed(result).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert len(lines) <= 36


def test_the_table_says_what_the_summary_says(result: Result) -> None:
    text, summary = printed(result, 120), result.summary
    assert "synthetic" in text
    assert "time_scale 4" in text
    assert "vLLM 0.24.0" in text
    assert f"{summary['requests']['completed']:,} completed" in text
    assert seconds(summary["latency"]["client_ttft_s"]["p99"]) in text
    assert percent(summary["slo"]["attainment"]) in text
    assert f"{digits(summary['slo']['goodput_per_s'])} requests/s met them" in text
    assert dollars(summary["cost"]["usd_per_million_output_tokens"]) in text
    assert "✓ p50 client TTFT ≤ 300 ms" in text
    assert "✗ p99 client TTFT ≤ 1 s, prompts ≤ 2,048" in text
    assert "∞" in text
    assert "never completed" in text


def test_undefined_numbers_are_dashes() -> None:
    text = printed(run(all_rejected()))
    assert "0 completed" in text
    latency_rows = [row for row in text.splitlines() if row.startswith("client TTFT")]
    assert latency_rows[0].split()[2:] == [DASH] * 4
    assert "nan" not in text.lower()
    assert "None" not in text


def test_names_are_not_taken_for_markup() -> None:
    journeys = fake_journeys(30)
    facts = fake_facts(journeys)
    about = replace(facts.provenance, scenario="[red]x", trace="a[/b].csv", notes=("[bold]n",))
    pools = tuple(replace(p, model="m[/i]", profile="[b]p") for p in facts.pools)
    recorder = Recorder(None)
    record(recorder, journeys, samples=5)
    result = finish(recorder, replace(facts, provenance=about, pools=pools), SLO, "complete")
    text = printed(result)
    for name in ("[red]x", "a[/b].csv", "[bold]n", "m[/i]", "[b]p"):
        assert name in text


def test_an_interrupted_run_says_so() -> None:
    assert "interrupted" in printed(run(fake_journeys(30), status="interrupted")).splitlines()[0]
    assert "interrupted" not in printed(run(fake_journeys(30)))


def test_a_window_that_is_not_the_whole_run_is_said() -> None:
    journeys = fake_journeys(200)
    recorder = Recorder(None)
    record(recorder, journeys, samples=5)
    facts = replace(fake_facts(journeys), window_start_s=5.0, window_end_s=10.0)
    text = printed(finish(recorder, facts, SLO, "complete"), 160)
    assert "that came between 5.00 s and 10.0 s" in text


def test_the_curve_is_the_share_of_offered_requests(result: Result) -> None:
    axes = latency_figure(result).axes[0]
    curve = axes.lines[0]
    window = result.summary["window"]
    assert curve.get_ydata()[-1] == pytest.approx(window["completed"] / window["offered"])
    frame = result.requests()
    done = frame[frame["outcome"] == "completed"]
    ttft = (done["client_first_token_s"] - done["client_sent_s"]).sort_values()
    assert np.allclose(curve.get_xdata(), ttft)


def test_goodput_drawn_adds_up_to_goodput(result: Result) -> None:
    figure = timeline_figure(result)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Offered load",
        "Requests at the replicas",
        "KV cache in use",
        "Goodput",
    ]
    stairs = figure.axes[3].patches[0].get_data()
    seconds_per_unit = 1.0 if result.summary["run"]["end_s"] < 600 else 60.0
    drawn = float(np.sum(stairs.values * np.diff(stairs.edges)) * seconds_per_unit)
    assert drawn == pytest.approx(result.summary["slo"]["good"])


def test_samples_drawn_are_sums_and_extremes_over_replicas(result: Result) -> None:
    samples = result.timeline().groupby("t_s")
    _, queue, cache, _ = timeline_figure(result).axes
    running, waiting = (bands.get_paths()[0].vertices for bands in queue.collections)
    assert running[:, 1].max() == samples["running"].sum().max()
    both = samples["running"].sum() + samples["waiting"].sum()
    assert waiting[:, 1].max() == both.max()
    band = cache.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == samples["kv_usage"].max().max()
    assert cache.lines[0].get_ydata().max() == pytest.approx(samples["kv_usage"].mean().max())


@pytest.mark.parametrize(
    "odd",
    [
        run(all_rejected()),
        run(fake_journeys(1)),
        run(fake_journeys(30), ASlo(), samples=0),
    ],
    ids=["all rejected", "one request", "no SLO, no samples"],
)
def test_odd_results_are_drawn_too(odd: Result, tmp_path: Path) -> None:
    for path in write_figures(odd, tmp_path):
        assert path.stat().st_size > 10_000
    assert printed(odd)


def test_drawing_leaves_no_trace_and_repeats_itself(result: Result, tmp_path: Path) -> None:
    settings = dict(matplotlib.rcParams)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = [path.read_bytes() for path in write_figures(result, tmp_path / "a")]
    second = [path.read_bytes() for path in write_figures(result, tmp_path / "b")]
    assert first == second
    assert dict(matplotlib.rcParams) == settings
    code = "import sys, fleetsim.sim.report.plots as p; print('matplotlib.pyplot' in sys.modules)"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.strip() == "False"
