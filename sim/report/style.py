"""One look for all figures: colours that colour-blind readers can tell apart, light grid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Okabe and Ito's palette.
BLUE = "#0072B2"
SKY = "#56B4E9"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
GREEN = "#009E73"
GREY = "#8A8A8A"
INK = "#333333"

_SETTINGS: dict[str, object] = {
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": "#BBBBBB",
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "xtick.color": "#BBBBBB",
    "ytick.color": "#BBBBBB",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "figure.facecolor": "white",
    "savefig.dpi": 150,
}


@contextmanager
def house_style() -> Iterator[None]:
    """The settings of all figures, for as long as the block runs; nothing global stays changed."""
    with matplotlib.rc_context(_SETTINGS):  # type: ignore[arg-type]
        yield


def new_figure(width_in: float, height_in: float, title: str, aside: str) -> Figure:
    """An empty figure with a bold title and a grey line of context above the room for its axes.

    It is on the Agg canvas, which needs no display and no pyplot.
    """
    figure = Figure(figsize=(width_in, height_in))
    FigureCanvasAgg(figure)
    top = 1.0 - 0.62 / height_in
    figure.set_layout_engine("constrained", rect=(0.005, 0.0, 0.99, top), h_pad=0.08, w_pad=0.08)
    figure.text(0.012, 1.0 - 0.12 / height_in, title, va="top", fontsize=13, fontweight="bold")
    figure.text(0.012, 1.0 - 0.40 / height_in, aside, va="top", fontsize=9, color=GREY)
    return figure


def empty_note(axes: Axes, text: str) -> None:
    """Say in the middle of the axes why nothing is drawn."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)
