"""Where the simulator's seconds come from: profiles, their fit, their provenance and error."""

from fleetsim.calibration.analytic import analytic_profile
from fleetsim.calibration.library import list_profiles, load_profile
from fleetsim.calibration.memory import EngineSettings
from fleetsim.calibration.parameters import HostWork, SchedulingMode, StepCostParameters
from fleetsim.calibration.profile import Profile

__all__ = [
    "EngineSettings",
    "HostWork",
    "Profile",
    "SchedulingMode",
    "StepCostParameters",
    "analytic_profile",
    "list_profiles",
    "load_profile",
]
