"""Two figures of a result: how long users waited, and what the fleet was doing meanwhile.

Both take a result and return a matplotlib figure on the Agg canvas; save it with
``figure.savefig(path)``. The settings of pyplot and of other figures stay as they are.
"""

from fleetsim.sim.report.latency_plot import latency_figure
from fleetsim.sim.report.timeline_plot import timeline_figure

__all__ = ["latency_figure", "timeline_figure"]
