"""Policies: what a router, an admission check or a limit decides, and how to add one's own."""

from fleetsim.policies.base import (
    ADMITTED,
    AdmissionPolicy,
    Decision,
    DrawsView,
    Limiter,
    PolicyParams,
    PoolView,
    ReplicaView,
    RequestView,
    RoutingPolicy,
    ScrapedMetrics,
    Verdict,
)
from fleetsim.policies.parameters import ParamInfo
from fleetsim.policies.registry import KINDS, PolicyInfo, build, describe, find, names, register

__all__ = [
    "ADMITTED",
    "KINDS",
    "AdmissionPolicy",
    "Decision",
    "DrawsView",
    "Limiter",
    "ParamInfo",
    "PolicyInfo",
    "PolicyParams",
    "PoolView",
    "ReplicaView",
    "RequestView",
    "RoutingPolicy",
    "ScrapedMetrics",
    "Verdict",
    "build",
    "describe",
    "find",
    "names",
    "register",
]
