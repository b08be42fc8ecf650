"""The service-level objective, in two parts that are never mixed."""

from typing import Annotated, Literal

from pydantic import Field

from fleetsim.sim.scenario.section import PositiveDuration, Section

SloMetric = Literal["client_ttft_s", "gateway_ttft_s", "engine_ttft_s", "tpot_s", "e2e_s"]


class PercentileTarget(Section):
    """A sentence about the whole run: the p-th percentile of a metric is at most so much."""

    metric: SloMetric
    """What is measured, one value a request."""
    percentile: float = Field(gt=0.0, le=100.0)
    """Which percentile: 50, 90, 99, 99.9."""
    at_most_s: PositiveDuration
    """The bound."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Only requests with prompts up to this length count; left out, all do."""


class PerRequestTargets(Section):
    """What one request must meet, each that is stated, to count for attainment and goodput."""

    client_ttft_s: PositiveDuration | None = None
    """Client sends its first attempt to client holds the first token."""
    gateway_ttft_s: PositiveDuration | None = None
    """Arrival at the gateway to first token leaving it."""
    engine_ttft_s: PositiveDuration | None = None
    """Arrival at the engine's API server to first token there."""
    tpot_s: PositiveDuration | None = None
    """Mean time per output token after the first."""
    e2e_s: PositiveDuration | None = None
    """Client sends its first attempt to client holds the last token."""


class Slo(Section):
    """`percentiles` pass or fail the run; `per_request` defines attainment and goodput."""

    percentiles: Annotated[tuple[PercentileTarget, ...], Field(strict=False)] = ()
    """All must hold."""
    per_request: PerRequestTargets = PerRequestTargets()
    """A request meets its SLO when it meets all that are stated."""
