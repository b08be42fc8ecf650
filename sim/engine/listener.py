"""What an engine tells of its requests."""

from __future__ import annotations

from typing import Protocol

from fleetsim.sim.engine.sequence import Sequence


class EngineListener(Protocol):
    """Who is told what the engine's requests go through; one call per event of a request."""

    def scheduled(self, sequence: Sequence, now_s: float) -> None:
        """It got its place (again, if it had been preempted)."""

    def preempted(self, sequence: Sequence, now_s: float, last_token_s: float) -> None:
        """It lost its place and blocks and waits to recompute.

        Its last token so far, if it has any, is out at `last_token_s`: under async scheduling
        one is still under way when it is preempted.
        """

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        """The step that ended its prefill has ended; after a preemption, the next token."""

    def finished(self, sequence: Sequence, now_s: float) -> None:
        """Its last token is out and its blocks are free."""

    def cache_changed(self) -> None:
        """The prefix cache's contents changed; only if `BlockPool.changes` is kept."""
