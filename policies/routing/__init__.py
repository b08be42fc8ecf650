"""Which replica of a pool serves a request."""

from fleetsim.policies.routing import power_of_two

__all__ = ["power_of_two"]
