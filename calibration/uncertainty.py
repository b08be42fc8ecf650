"""How far a profile's seconds may be off, as something that experiments can draw from."""

from math import exp
from statistics import NormalDist

from fleetsim.calibration.section import Section, Share


class Uncertainty(Section):
    """Spread of the factor between real and priced step times, by kind of step.

    The factor is log-normal with median 1. It is the same for all steps of a kind in a run:
    what is not known is the machine, not each step. Its standard deviation in logarithms comes
    from runs that the profile was not fitted to.
    """

    decode_log_sd: Share
    """Of steps that only decode."""
    prefill_log_sd: Share
    """Of steps with a prefill in them."""
    source: str

    def factors(self, decode_share: float, prefill_share: float) -> tuple[float, float]:
        """The factors at two quantiles in (0, 1); a uniform share gives a random factor."""
        normal = NormalDist()
        return (
            exp(self.decode_log_sd * normal.inv_cdf(decode_share)),
            exp(self.prefill_log_sd * normal.inv_cdf(prefill_share)),
        )
