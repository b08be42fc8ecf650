"""Back-tests: a measured run replayed with its own arrivals and lengths, and compared."""

from fleetsim.sim.backtest.bench_runs import replay_as_sent
from fleetsim.sim.backtest.closed_loop import Lengths, replay_closed_loop
from fleetsim.sim.backtest.host_fit import fit_host
from fleetsim.sim.backtest.measured import MeasuredRun, read_run
from fleetsim.sim.backtest.replay import Load, Replay, replay
from fleetsim.sim.backtest.scores import Comparison, compare
from fleetsim.sim.backtest.settings import parse_changes, replay_settings

__all__ = [
    "Comparison",
    "Lengths",
    "Load",
    "MeasuredRun",
    "Replay",
    "compare",
    "fit_host",
    "parse_changes",
    "read_run",
    "replay",
    "replay_as_sent",
    "replay_closed_loop",
    "replay_settings",
]
