"""How a scenario names a policy: its name, and its parameters beside it."""

from typing import Any

from pydantic import ConfigDict, Field

from fleetsim.sim.scenario.section import Section


class PolicyChoice(Section):
    """A policy by name, `module:Class` for one's own; every other key is its parameter.

    The parameters are checked by the policy itself when the scenario is loaded.
    """

    model_config = ConfigDict(extra="allow")

    policy: str = Field(min_length=1)
    """The policy's name; `fleetsim policies` lists them."""

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as written, by name."""
        return dict(self.model_extra or {})
