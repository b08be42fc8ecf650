"""The gateway: validation, limits per tenant, metering; cheap, and in front of everything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heapreplace
from pathlib import Path
from typing import Any

from fleetsim.policies import Limiter, build
from fleetsim.sim.clock import ARRIVAL, Clock
from fleetsim.sim.request import COMPLETED, REJECTED, Journey
from fleetsim.sim.results.facts import TenantUsage
from fleetsim.sim.scenario import Gateway as GatewaySettings
from fleetsim.traces import InputError

ANY_TENANT = "*"


class Meter:
    """What one tenant used, and the limits that it is under."""

    __slots__ = ("completion_tokens", "limits", "prompt_tokens", "rejected", "requests")

    def __init__(self, limits: list[Limiter]) -> None:
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

    __slots__ = ("_clock", "_folder", "_forward", "_free_s", "_refuse", "_settings", "meters")

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
        service_s = self._settings.service_s
        if service_s <= 0.0:
            self._serve(journey)
            return
        done_s = max(now, self._free_s[0]) + service_s
        heapreplace(self._free_s, done_s)
        self._clock.at(
            done_s, ARRIVAL, journey.request.request_id + 1, partial(self._served, journey)
        )

    def _served(self, journey: Journey, _alarm: Any) -> None:
        if not journey.outcome:  # the client may have gone while it waited
            self._serve(journey)

    def _serve(self, journey: Journey) -> None:
        request = journey.request
        meter = self.meters.get(request.tenant)
        if meter is None:
            meter = self.meters[request.tenant] = Meter(self._limits_of(request.tenant))
        meter.requests += 1
        cap = self._settings.max_tokens_cap
        if cap is not None and request.max_tokens > cap:
            meter.rejected += 1
            self._refuse(journey, "max_tokens_cap")
            return
        if meter.limits:
            now = self._clock.now
            estimate = request.prompt_tokens + request.max_tokens
            for position, limit in enumerate(meter.limits):
                verdict = limit.try_reserve(now, estimate)
                if not verdict.admitted:
                    for earlier in meter.limits[:position]:
                        earlier.cancel(now, estimate)
                    meter.rejected += 1
                    self._refuse(journey, verdict.reason)
                    return
        self._forward(journey)

    def turned_away(self, journey: Journey) -> None:
        """The router refused it: its reservations are void."""
        meter = self.meters[journey.request.tenant]
        meter.rejected += 1
        self._settle(meter, journey, refused=True)

    def ended(self, journey: Journey) -> None:
        """It left the fleet, well or badly: settle with the true count, and bill it."""
        meter = self.meters[journey.request.tenant]
        if journey.outcome == COMPLETED or journey.delivered_tokens:
            meter.prompt_tokens += journey.request.prompt_tokens
            meter.completion_tokens += journey.delivered_tokens
        if meter.limits:
            self._settle(meter, journey, refused=journey.outcome == REJECTED)

    def usage(self) -> tuple[TenantUsage, ...]:
        """What was metered, by tenant in order of name."""
        return tuple(
            TenantUsage(
                tenant, meter.requests, meter.rejected, meter.prompt_tokens, meter.completion_tokens
            )
            for tenant, meter in sorted(self.meters.items())
        )

    def _settle(self, meter: Meter, journey: Journey, refused: bool) -> None:
        now = self._clock.now
        request = journey.request
        estimate = request.prompt_tokens + request.max_tokens
        for limit in meter.limits:
            if refused:
                limit.cancel(now, estimate)
            else:
                limit.reconcile(now, estimate, request.prompt_tokens + journey.delivered_tokens)

    def _limits_of(self, tenant: str) -> list[Limiter]:
        tenants = self._settings.tenants
        entry = tenants.get(tenant, tenants.get(ANY_TENANT))
        if entry is None:
            return []
        return [
            build("limits", choice.policy, choice.params, f"gateway.tenants.{tenant}", self._folder)
            for choice in entry.limits
        ]


def check_limits(
    settings: GatewaySettings, folder: Path, smallest_estimate: dict[str, int]
) -> None:
    """Refuse a limit that no request of a tenant could ever pass.

    Args:
        settings: the gateway section.
        folder: as for `Gateway`.
        smallest_estimate: prompt + max_tokens of each tenant's smallest request.

    Raises:
        InputError: naming the tenant and both numbers.
    """
    for tenant, estimate in smallest_estimate.items():
        name = tenant if tenant in settings.tenants else ANY_TENANT
        entry = settings.tenants.get(name)
        for position, choice in enumerate(entry.limits if entry else ()):
            where = f"gateway.tenants.{name}.limits.{position}"
            limit: Limiter = build("limits", choice.policy, choice.params, where, folder)
            if estimate > limit.largest_estimate_tokens:
                raise InputError(
                    f"{where}: {choice.policy} can reserve at most "
                    f"{limit.largest_estimate_tokens:g} tokens, but the smallest request of "
                    f"tenant '{tenant}' asks for {estimate} (prompt + max_tokens); raise the "
                    "burst, or lower workload.max_tokens or gateway.max_tokens_cap"
                )
