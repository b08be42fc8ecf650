"""What one key may ask for: limits at the gateway. Importing registers them."""

from fleetsim.policies.limits import (
    concurrency,
    requests_per_minute,
    reserve_only,
    token_bucket,
    unlimited,
)
from fleetsim.policies.limits.all_of import AllOf, refuse_hopeless

__all__ = [
    "AllOf",
    "concurrency",
    "refuse_hopeless",
    "requests_per_minute",
    "reserve_only",
    "token_bucket",
    "unlimited",
]
