"""Transforms: from a trace to another one.

Each is a pure function. It leaves its trace as it was, draws from a named stream of a given seed,
appends its name, parameters, seed and findings to ``metadata.transforms``, and accounts for every
row that it leaves out or adds.
"""

from fleetsim.traces.transforms.assign import assign, zipf_weights
from fleetsim.traces.transforms.attach_sessions import attach_sessions
from fleetsim.traces.transforms.block_bootstrap import block_bootstrap
from fleetsim.traces.transforms.curves import Curve, Day, FlashCrowd, Points, Week
from fleetsim.traces.transforms.cut import head, window
from fleetsim.traces.transforms.dequantize import dequantize
from fleetsim.traces.transforms.lengths import length_map, limit_outputs
from fleetsim.traces.transforms.modulate import modulate
from fleetsim.traces.transforms.reburst import reburst
from fleetsim.traces.transforms.superpose import repeat, superpose
from fleetsim.traces.transforms.thin import thin
from fleetsim.traces.transforms.time_scale import time_scale

__all__ = [
    "Curve",
    "Day",
    "FlashCrowd",
    "Points",
    "Week",
    "assign",
    "attach_sessions",
    "block_bootstrap",
    "dequantize",
    "head",
    "length_map",
    "limit_outputs",
    "modulate",
    "reburst",
    "repeat",
    "superpose",
    "thin",
    "time_scale",
    "window",
    "zipf_weights",
]
