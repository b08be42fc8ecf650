"""Two figures of a result: how long users waited, and what the fleet was doing meanwhile."""

from __future__ import annotations

from pathlib import Path

from fleetsim.sim.report.latency_plot import latency_figure
from fleetsim.sim.report.timeline_plot import timeline_figure
from fleetsim.sim.results.result import Result
from matplotlib.figure import Figure

__all__ = ["latency_figure", "timeline_figure", "write_figures"]


def write_figures(result: Result, folder: Path) -> list[Path]:
    """Draw both figures as `latency.png` and `timeline.png` in a folder that exists.

    Raises:
        OSError: when a file cannot be written.
    """
    figures: dict[str, Figure] = {
        "latency.png": latency_figure(result),
        "timeline.png": timeline_figure(result),
    }
    paths = []
    for name, figure in figures.items():
        figure.savefig(folder / name)
        paths.append(folder / name)
    return paths
