"""Let everything in."""

from __future__ import annotations

from fleetsim.policies.base import ADMITTED, PoolView, ReplicaView, RequestView, Verdict
from fleetsim.policies.registry import register


@register("admission", "always")
class Always:
    """Admits everything; the queue takes what the replica cannot."""

    needs_scraped = False
    needs_prefix = False

    def admit(self, request: RequestView, replica: ReplicaView, pool: PoolView) -> Verdict:
        """Yes."""
        return ADMITTED
