"""`fleetsim schema`: the scenario as JSON Schema."""

import json


def schema() -> None:
    """Print the JSON Schema of a scenario, for editors that complete and check YAML.

    \b
    Example, with the YAML extension of VS Code or any yaml-language-server:
      fleetsim schema > fleetsim.schema.json
      # first line of the scenario:
      # yaml-language-server: $schema=./fleetsim.schema.json
    """
    from fleetsim.sim.scenario import scenario_json_schema

    print(json.dumps(scenario_json_schema(), indent=2))
