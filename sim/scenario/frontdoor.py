"""Before a request reaches a replica: client, gateway and router."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from fleetsim.sim.scenario.policy import PolicyChoice
from fleetsim.sim.scenario.section import Duration, PositiveDuration, Section


class Client(Section):
    """Where the requests come from."""

    network_delay_s: Duration = 0.0
    """One way, between client and gateway; paid once up and once down."""
    timeout_s: PositiveDuration | None = None
    """A client gives up this long after it sent its request; left out, it waits for ever."""


class Tenant(Section):
    """What one tenant (an API key, a team) may use."""

    limits: Annotated[tuple[PolicyChoice, ...], Field(strict=False)] = ()
    """All of them must let a request through; each is settled when the request ends."""


class Gateway(Section):
    """Validation, limits per tenant, metering, and a small service time."""

    service_s: Duration = 0.0
    """A gateway worker's time for one request."""
    workers: int = Field(default=16, ge=1)
    """Requests that the gateway handles at once; the others queue in order of arrival."""
    max_tokens_cap: int | None = Field(default=None, ge=1)
    """A request that asks for more is refused; one that states no max_tokens gets at most this."""
    tenants: dict[Annotated[str, Field(min_length=1)], Tenant] = Field(default_factory=dict)
    """By name; `"*"` stands for every tenant without an entry, each with limits of its own."""


def _knowledge(value: Any) -> Any:
    return {"source": value} if isinstance(value, str) else value


class _OrBareSource:
    """Lets the JSON Schema allow what `_knowledge` does."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        sources = PrefixKnowledge.model_json_schema()["properties"]["source"]["enum"]
        return {"anyOf": [{"enum": sources}, handler(core_schema)]}


class PrefixKnowledge(Section):
    """What the router believes each replica's prefix cache to hold.

    `none`: nothing. `own_history`: the prefixes that it has itself sent there.
    `events`: the cache's own contents, as its KV events tell, `delay_s` late.
    """

    source: Literal["none", "own_history", "events"] = "own_history"
    """Who tells the router."""
    delay_s: Duration = 0.0
    """How long after a change in the cache the router learns of it (events only)."""


class Router(Section):
    """Which pool, which replica, and whether at all."""

    routing: PolicyChoice = PolicyChoice(policy="power_of_two")
    """Which of the pool's replicas gets the request."""
    admission: PolicyChoice = PolicyChoice(policy="always")
    """Whether the request may join the replica that routing chose."""
    default_pool: str | None = None
    """The pool for a request that names no model; left out, the first pool of the file."""
    prefix_knowledge: Annotated[PrefixKnowledge, BeforeValidator(_knowledge), _OrBareSource()] = (
        PrefixKnowledge()
    )
    """What feeds the cached-tokens signal; a bare word is its source."""
    scrape_interval_s: PositiveDuration = 1.0
    """How often each replica's metrics are scraped; scraped signals are up to this old."""
    log_decisions: bool = False
    """Record every routing decision with its reason and scores."""
