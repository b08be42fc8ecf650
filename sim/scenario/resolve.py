"""Looks up what a scenario names (policies, profiles) and fills in what they have by default."""

from collections.abc import Iterator

from fleetsim.calibration import Profile, list_profiles, load_profile
from fleetsim.policies import registry
from fleetsim.sim.scenario.engine import engine_settings, fill_engine_options
from fleetsim.sim.scenario.frontdoor import Gateway, Tenant
from fleetsim.sim.scenario.policy import PolicyChoice
from fleetsim.sim.scenario.pools import Pool
from fleetsim.sim.scenario.problems import ScenarioError, Where
from fleetsim.sim.scenario.scenario import Scenario
from fleetsim.sim.scenario.yaml_text import Loc, dotted
from fleetsim.traces.errors import InputError


def pool_profile(scenario: Scenario, pool: str) -> Profile:
    """The calibrated profile of a pool: a shipped one by name, or a file beside the scenario.

    Raises:
        InputError: there is none, or the file is no profile.
    """
    written = scenario.pools[pool].profile
    if written in list_profiles() or not ("/" in written or written.endswith(".json")):
        return load_profile(written)
    return load_profile(scenario.path(f"pools.{pool}.profile", written))


def resolve(scenario: Scenario, where: Where | None = None) -> Scenario:
    """The scenario with every default of its policies, engines and profiles written in.

    Resolving twice changes nothing. `where` names file and line of a key in messages.

    Raises:
        ScenarioError: an unknown policy, parameter or profile, an engine that would not start,
            two pools of one model; all of them at once.
    """
    resolver = _Resolver(scenario, where or (lambda loc: scenario.origin.source))
    resolved = resolver.resolved()
    if resolver.problems:
        raise ScenarioError(resolver.problems)
    return resolved


class _Resolver:
    def __init__(self, scenario: Scenario, where: Where) -> None:
        self._scenario = scenario
        self._where = where
        self.problems: list[str] = []

    def resolved(self) -> Scenario:
        scenario = self._scenario
        pools = {name: self._pool(name, pool) for name, pool in scenario.pools.items()}
        self._refuse_shared_models(pools)
        router = scenario.router.model_copy(
            update={
                "routing": self._policy("routing", ("router", "routing"), scenario.router.routing),
                "admission": self._policy(
                    "admission", ("router", "admission"), scenario.router.admission
                ),
                "default_pool": scenario.default_pool,
            }
        )
        updates = {"pools": pools, "router": router, "gateway": self._gateway(scenario.gateway)}
        return scenario.model_copy(update=updates)

    def _gateway(self, gateway: Gateway) -> Gateway:
        tenants = {
            name: Tenant(limits=tuple(self._limits(name, tenant)))
            for name, tenant in gateway.tenants.items()
        }
        return gateway.model_copy(update={"tenants": tenants})

    def _limits(self, name: str, tenant: Tenant) -> Iterator[PolicyChoice]:
        for position, limit in enumerate(tenant.limits):
            yield self._policy("limits", ("gateway", "tenants", name, "limits", position), limit)

    def _policy(self, kind: str, loc: Loc, choice: PolicyChoice) -> PolicyChoice:
        where = f"{self._where((*loc, 'policy'))}: {dotted(loc)}"
        folder = self._scenario.origin.folder
        try:
            registry.build(kind, choice.policy, choice.params, where, folder)  # type: ignore[call-overload]
            params = getattr(registry.find(kind, choice.policy, where, folder), "Params", None)
        except InputError as error:
            self.problems.append(str(error))
            return choice
        if params is None:
            return choice
        filled = params.model_validate(choice.params).model_dump(mode="json", by_alias=True)
        return PolicyChoice(policy=choice.policy, **filled)

    def _pool(self, name: str, pool: Pool) -> Pool:
        loc: Loc = ("pools", name, "profile")
        try:
            profile = pool_profile(self._scenario, name)
            loc = ("pools", name, "engine")
            engine_settings(pool.engine, profile)
        except InputError as error:
            self.problems.append(f"{self._where(loc)}: {dotted(loc)}: {error}")
            return pool
        price = pool.gpu_usd_per_hour
        return pool.model_copy(
            update={
                "model": pool.model or profile.model.hf_id,
                "engine": fill_engine_options(pool.engine, profile),
                "gpu_usd_per_hour": profile.gpu.usd_per_hour if price is None else price,
            }
        )

    def _refuse_shared_models(self, pools: dict[str, Pool]) -> None:
        first: dict[str, str] = {}
        for name, pool in pools.items():
            if pool.model is None:
                continue
            if pool.model in first:
                loc: Loc = ("pools", name, "model")
                self.problems.append(
                    f"{self._where(loc)}: {dotted(loc)}: pools {first[pool.model]} and {name} both "
                    f"serve '{pool.model}', so a request could not tell which; give one of them "
                    "another model name"
                )
            first.setdefault(pool.model, name)
