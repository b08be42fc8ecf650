"""The scenario as JSON Schema, for editors that complete and check YAML."""

from typing import Any

from fleetsim.sim.scenario.scenario import Scenario


def scenario_json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a scenario file, with every key's description."""
    schema = Scenario.model_json_schema()
    schema["required"].remove("name")  # a file that gives none is called by its own name
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
