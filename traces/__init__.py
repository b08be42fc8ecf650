"""Traces: what clients asked for, as columns."""

from fleetsim.traces.errors import InputError
from fleetsim.traces.lengths import FixedLength, Lengths, LognormalLength, UniformLength
from fleetsim.traces.load import FORMATS, load_trace
from fleetsim.traces.prefix_tree import PrefixSegments, build_segments
from fleetsim.traces.samples import load_sample
from fleetsim.traces.schema import Categorical, Trace, TraceMetadata
from fleetsim.traces.stats import LengthStats, TraceStats, trace_stats
from fleetsim.traces.synth import synthesize

__all__ = [
    "FORMATS",
    "Categorical",
    "FixedLength",
    "InputError",
    "LengthStats",
    "Lengths",
    "LognormalLength",
    "PrefixSegments",
    "Trace",
    "TraceMetadata",
    "TraceStats",
    "UniformLength",
    "build_segments",
    "load_sample",
    "load_trace",
    "synthesize",
    "trace_stats",
]
