"""The gateway: validation, limits per tenant, metering; cheap, and in front of everything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heapreplace
from pathlib import Path
from typing import Any

from fleetsim.policies import build
from fleetsim.policies.limits import AllOf
from fleetsim.sim.clock import ARRIVAL, Clock, rank
from fleetsim.sim.request import Journey
from fleetsim.sim.results.facts import TenantUsage
from fleetsim.sim.scenario import Gateway as GatewaySettings

ANY_TENANT = "*"


class Meter:
    """What one tenant used, and the limits that it is under (None: no limits).

    Bills the prompt of every request of which some output was delivered.
    """

    __slots__ = ("completion_tokens", "limits", "prompt_tokens", "rejected", "requests")

    def __init__(self, limits: AllOf | None) -> None:
        self.limits = limits
        self.requests = 0
        self.rejected = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0


class Gateway:
    """Takes requests from the clients and hands them to the router.

    A request waits for one of `workers` (first come, first served), takes `service_s`, and is
    then checked: its max_tokens against the cap (400), and its estimate prompt + max_tokens
    against each limit of its tenant (429). Reservations are settled with the true count when the
    request ends, and taken back when it is refused further on.

    Args:
        clock: the simulation's clock.
        settings: the scenario's gateway section.
        folder: what paths of one's own limiters are relative to.
        forward: takes the requests that are let through.
        refuse: ends a journey with a reason.
    """

    __slots__ = (
        "_cap",
        "_clock",
        "_folder",
        "_forward",
        "_free_s",
        "_refuse",
        "_service_s",
        "_settings",
        "meters",
    )

    def __init__(
        self,
        clock: Clock,
        settings: GatewaySettings,
        folder: Path,
        forward: Callable[[Journey], None],
        refuse: Callable[[Journey, str], None],
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._service_s = settings.service_s
        self._cap = settings.max_tokens_cap
        self._folder = folder
        self._forward = forward
        self._refuse = refuse
        # When each worker is free again; a heap.
        self._free_s = [0.0] * settings.workers
        self.meters: dict[str, Meter] = {}

    def arrive(self, journey: Journey) -> None:
        """A request reaches the gateway now."""
        now = self._clock.now
        journey.arrived_s = now
        if self._service_s <= 0.0:
            self._serve(journey)
            return
        done_s = max(now, self._free_s[0]) + self._service_s
        heapreplace(self._free_s, done_s)
        self._clock.at(
            done_s, rank(ARRIVAL, journey.request.request_id + 1), partial(self._served, journey)
        )

    def _served(self, journey: Journey, _alarm: Any) -> None:
        if not journey.outcome:  # the client may have gone while it waited
            self._serve(journey)

    def _serve(self, journey: Journey) -> None:
        request = journey.request
        meter = self.meters.get(request.tenant)
        if meter is None:
            meter = self.meters[request.tenant] = self._new_meter(request.tenant)
        meter.requests += 1
        cap = self._cap
        if cap is not None and request.max_tokens > cap:
            meter.rejected += 1
            self._refuse(journey, "max_tokens_cap")
            return
        if meter.limits is not None:
            estimate = request.prompt_tokens + request.max_tokens
            verdict = meter.limits.try_reserve(self._clock.now, estimate)
            if not verdict.admitted:
                meter.rejected += 1
                self._refuse(journey, verdict.reason)
                return
        self._forward(journey)

    def turned_away(self, journey: Journey) -> None:
        """The router refused it: its reservations are void."""
        meter = self.meters[journey.request.tenant]
        meter.rejected += 1
        if meter.limits is not None:
            request = journey.request
            meter.limits.cancel(self._clock.now, request.prompt_tokens + request.max_tokens)

    def ended(self, journey: Journey) -> None:
        """It left the fleet, well or badly: settle with the true count, and bill it."""
        meter = self.meters[journey.request.tenant]
        request = journey.request
        delivered = journey.delivered_tokens
        if delivered:
            meter.prompt_tokens += request.prompt_tokens
            meter.completion_tokens += delivered
        if meter.limits is not None:
            prompt_tokens = request.prompt_tokens
            meter.limits.reconcile(
                self._clock.now, prompt_tokens + request.max_tokens, prompt_tokens + delivered
            )

    def usage(self) -> tuple[TenantUsage, ...]:
        """What was metered, by tenant in order of name."""
        return tuple(
            TenantUsage(
                tenant, meter.requests, meter.rejected, meter.prompt_tokens, meter.completion_tokens
            )
            for tenant, meter in sorted(self.meters.items())
        )

    def _new_meter(self, tenant: str) -> Meter:
        settings = self._settings
        limited = tenant in settings.tenants or ANY_TENANT in settings.tenants
        return Meter(limits_of(settings, tenant, self._folder)[0] if limited else None)


def limits_of(settings: GatewaySettings, tenant: str, folder: Path) -> tuple[AllOf, str]:
    """All limits of a tenant as one, and the scenario's key that they stand under."""
    name = tenant if tenant in settings.tenants else ANY_TENANT
    where = f"gateway.tenants.{name}.limits"
    entry = settings.tenants.get(name)
    return AllOf(
        [
            build("limits", choice.policy, choice.params, where, folder)
            for choice in (entry.limits if entry is not None else ())
        ]
    ), where
