"""Whether a request may join the replica that routing chose. Importing registers the policies."""

from fleetsim.policies.admission import always, predictive_ttft, reject_all

__all__ = ["always", "predictive_ttft", "reject_all"]
