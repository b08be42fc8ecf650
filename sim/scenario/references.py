"""What a scenario names and others define: policies and calibrated profiles."""

from collections.abc import Callable

from fleetsim.policies import registry
from fleetsim.sim.scenario.policy import PolicyChoice
from fleetsim.sim.scenario.problems import ScenarioError, Where
from fleetsim.sim.scenario.scenario import Scenario
from fleetsim.sim.scenario.yaml_text import Loc, dotted
from fleetsim.traces.errors import InputError


def policy_choices(scenario: Scenario) -> list[tuple[str, Loc, PolicyChoice]]:
    """Every policy that the scenario names: its kind, its place, the choice."""
    choices: list[tuple[str, Loc, PolicyChoice]] = [
        ("routing", ("router", "routing"), scenario.router.routing),
        ("admission", ("router", "admission"), scenario.router.admission),
    ]
    for tenant, entry in scenario.gateway.tenants.items():
        for position, limit in enumerate(entry.limits):
            loc: Loc = ("gateway", "tenants", tenant, "limits", position)
            choices.append(("limits", loc, limit))
    return choices


def check_references(scenario: Scenario, where: Where) -> None:
    """Build every policy once, so that a wrong name or parameter is told now.

    Raises:
        ScenarioError: with all that is wrong.
    """
    problems: list[str] = []

    def attempt(check: Callable[[], object]) -> None:
        try:
            check()
        except InputError as error:
            problems.append(str(error))

    folder = scenario.origin.folder
    for kind, loc, choice in policy_choices(scenario):
        attempt(
            lambda kind=kind, loc=loc, choice=choice: registry.build(  # type: ignore[misc]
                kind,
                choice.policy,
                choice.params,
                f"{where((*loc, 'policy'))}: {dotted(loc)}",
                folder,
            )
        )
    if problems:
        raise ScenarioError(problems)
