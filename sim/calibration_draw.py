"""Draws one of the machines that a profile may stand for."""

from __future__ import annotations

from fleetsim.calibration import Profile
from fleetsim.sim.randomness import Draws
from fleetsim.traces.errors import InputError

_SEED = 0
"""Not the scenario's: draw k is the same machine whatever else is random."""

_DECODE, _PREFILL = range(2)


def draw_factors(profile: Profile, draw: int) -> tuple[float, float]:
    """Factors on decode steps and on steps with a prefill, for machine number `draw`.

    Pools of one profile stand for the same machine.

    Raises:
        InputError: the profile does not say how far off it may be.
    """
    if profile.uncertainty is None:
        raise InputError(
            f"calibration_draw {draw}: profile {profile.name} states no uncertainty to draw from; "
            "leave it out, or add an uncertainty to the profile"
        )
    draws = Draws(_SEED, f"calibration/{profile.name}")
    # Half a step of the generator up: its 0 would be an infinitely fast machine.
    decode, prefill = (draws.uniform(draw, kind) + 2.0**-54 for kind in (_DECODE, _PREFILL))
    return profile.uncertainty.factors(decode, prefill)
