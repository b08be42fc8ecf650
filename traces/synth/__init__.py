"""Synthetic traces: independent requests, sessions that share prefixes, mixes of clients."""

from fleetsim.traces.synth.clients import Client, ClientWindow, compose_clients
from fleetsim.traces.synth.requests import synthesize
from fleetsim.traces.synth.sessions import PrefixLevel, SessionShape, synthesize_sessions

__all__ = [
    "Client",
    "ClientWindow",
    "PrefixLevel",
    "SessionShape",
    "compose_clients",
    "synthesize",
    "synthesize_sessions",
]
