"""fleetsim: what would users have felt, and what would it have cost, on another fleet?

    from fleetsim import load_scenario, simulate

    result = simulate(load_scenario("fleet.yaml"))
    print(result.summary["latency"]["client_ttft_s"]["p99"])

What else there is lies in the rooms `fleetsim.sim`, `fleetsim.policies`, `fleetsim.traces` and
`fleetsim.calibration`.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

# In a checkout the rooms sim/, policies/, traces/ and calibration/ lie beside this folder, not
# in it; this lets `python -m pytest` and a plain `import fleetsim` from the root find them.
if (Path(__file__).parent.parent / "sim" / "engine").is_dir():
    __path__.append(str(Path(__file__).parent.parent))

if TYPE_CHECKING:
    from fleetsim.calibration import list_profiles as list_profiles
    from fleetsim.calibration import load_profile as load_profile
    from fleetsim.policies import register as register
    from fleetsim.sim.results.result import Result as Result
    from fleetsim.sim.scenario import Scenario as Scenario
    from fleetsim.sim.scenario import default_scenario as default_scenario
    from fleetsim.sim.scenario import load_scenario as load_scenario
    from fleetsim.sim.simulate import simulate as simulate
    from fleetsim.traces import InputError as InputError
    from fleetsim.traces import Trace as Trace
    from fleetsim.traces import load_trace as load_trace

__version__ = "0.1.0"

# Imported when first asked for, so that `fleetsim --help` need not load numpy and pandas.
_PLACES = {
    "InputError": "fleetsim.traces",
    "Result": "fleetsim.sim.results.result",
    "Scenario": "fleetsim.sim.scenario",
    "Trace": "fleetsim.traces",
    "default_scenario": "fleetsim.sim.scenario",
    "list_profiles": "fleetsim.calibration",
    "load_profile": "fleetsim.calibration",
    "load_scenario": "fleetsim.sim.scenario",
    "load_trace": "fleetsim.traces",
    "register": "fleetsim.policies",
    "simulate": "fleetsim.sim.simulate",
}

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'fleetsim' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
