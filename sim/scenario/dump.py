"""A scenario written back as YAML, with every default filled in."""

import yaml

from fleetsim.sim.scenario.scenario import Scenario


def resolved_yaml(scenario: Scenario) -> str:
    """The scenario as YAML: every key, in one stable order, seconds for durations.

    Paths stay as the user wrote them, so the text does not depend on the machine. Read back
    from the same folder, it is the same scenario.
    """
    data = scenario.model_dump(mode="json")
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    return text
