"""The figure of a trace says what it shows, whatever the trace."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fleetsim.sim.report.trace_plot import (
    draw_gaps,
    draw_lengths,
    draw_rate,
    draw_reuse,
    trace_figure,
)
from fleetsim.traces import Trace, TraceMetadata, load_sample, synthesize
from fleetsim.traces.reuse import prefix_reuse


def arrivals(*arrival_s: float) -> Trace:
    count = len(arrival_s)
    return Trace(
        arrival_s=np.array(arrival_s),
        prompt_tokens=np.ones(count, np.int32),
        output_tokens=np.ones(count, np.int32),
        source_row=np.arange(count),
        metadata=TraceMetadata("test", count, count),
    )


def axes() -> Axes:
    return Figure().add_subplot()


def png(figure: Figure) -> bytes:
    file = BytesIO()
    figure.savefig(file)
    return file.getvalue()


def test_every_axis_has_a_unit_and_the_figure_its_source() -> None:
    figure = trace_figure(load_sample(), "the sample")
    assert len(figure.axes) == 4
    for panel in figure.axes:
        assert panel.get_title(loc="left")
        assert panel.get_xlabel()
        assert panel.get_ylabel()
    texts = " ".join(text.get_text() for text in figure.texts)
    assert "the sample" in texts
    assert "Apache-2.0" in texts
    assert png(figure) == png(trace_figure(load_sample(), "the sample"))


@pytest.mark.parametrize("stamps", [(0.0,), (0.0, 0.0), (0.0, 5.0), (0.0, 0.0, 1e6)])
def test_the_smallest_traces_have_figures_too(stamps: tuple[float, ...]) -> None:
    assert png(trace_figure(arrivals(*stamps), "small")).startswith(b"\x89PNG")


def test_rate_counts_every_request() -> None:
    trace = synthesize(requests=5000, rate_rps=3, prompt_tokens=1, output_tokens=1, seed=1)
    panel = axes()
    draw_rate(panel, trace)
    steps = panel.patches[0].get_data()  # type: ignore[attr-defined]
    unit_s = 60.0  # minutes
    assert "minutes" in panel.get_xlabel()
    assert (steps.values * np.diff(steps.edges) * unit_s).sum() == pytest.approx(5000)


def test_the_curve_of_gaps_is_their_share_and_the_other_is_exponential() -> None:
    panel = axes()
    draw_gaps(panel, arrivals(0.0, 0.0, 1.0, 4.0))
    trace, poisson = panel.lines[:2]
    points = dict(zip(trace.get_xdata(), trace.get_ydata(), strict=True))
    assert points[1.0] == pytest.approx(2 / 3)  # share at or above 1 s
    assert points[3.0] == pytest.approx(1 / 3)
    x, y = np.asarray(poisson.get_xdata()), np.asarray(poisson.get_ydata())
    assert y == pytest.approx(np.exp(-x / (4 / 3)))
    assert panel.get_legend() is not None
    assert any("33.3 % of gaps are 0" in t.get_text() for t in panel.get_legend().get_texts())


def test_reuse_ends_at_its_limit_or_says_that_nothing_is_known() -> None:
    sample = load_sample()
    reuse = prefix_reuse(sample)
    assert reuse is not None
    panel = axes()
    draw_reuse(panel, sample)
    shares = np.asarray(panel.lines[0].get_ydata())
    assert shares[-1] == pytest.approx(reuse.hit_share(None))
    assert "blocks of 64 tokens" in panel.get_xlabel()
    panel = axes()
    draw_reuse(panel, replace(sample, block_ids=None, block_offsets=None))
    assert [text.get_text() for text in panel.texts] == ["no prefixes known"]


def test_a_large_trace_is_thinned_and_says_so() -> None:
    trace = synthesize(requests=45_000, rate_rps=3, prompt_tokens=1, output_tokens=1, seed=1)
    panel = axes()
    draw_lengths(panel, trace)
    assert "every 3th" not in panel.get_title(loc="left")
    assert "one in 3" in panel.get_title(loc="left") + panel.get_title()
    assert len(panel.collections[0].get_offsets()) == 15_000  # type: ignore[arg-type]
