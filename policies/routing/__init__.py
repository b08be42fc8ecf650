"""Which replica of a pool serves a request. One policy per file; importing registers them."""

from fleetsim.policies.routing import (
    always_first,
    least_requests,
    least_tokens,
    power_of_two,
    prefix_affinity,
    random_choice,
    round_robin,
)

__all__ = [
    "always_first",
    "least_requests",
    "least_tokens",
    "power_of_two",
    "prefix_affinity",
    "random_choice",
    "round_robin",
]
