"""An admission policy that must lose."""

from __future__ import annotations

from fleetsim.policies.base import PoolView, ReplicaView, RequestView, Verdict
from fleetsim.policies.registry import register

_REFUSED = Verdict(False, "rejected_all")


@register("admission", "reject_all")
class RejectAll:
    """DELIBERATELY BAD: refuses everything. It has the best latency of what it completes."""

    needs_scraped = False
    needs_prefix = False

    def admit(self, request: RequestView, replica: ReplicaView, pool: PoolView) -> Verdict:
        """No."""
        return _REFUSED
