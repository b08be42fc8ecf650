"""A scenario: one YAML file, read strictly, with errors that say what would be right."""

from fleetsim.sim.scenario.dump import resolved_yaml
from fleetsim.sim.scenario.engine import engine_settings, fill_engine_options
from fleetsim.sim.scenario.frontdoor import Client, Gateway, PrefixKnowledge, Router, Tenant
from fleetsim.sim.scenario.load import default_scenario, load_scenario
from fleetsim.sim.scenario.measurement import Measurement, ResultOptions
from fleetsim.sim.scenario.policy import PolicyChoice
from fleetsim.sim.scenario.pools import EngineOptions, Pool
from fleetsim.sim.scenario.problems import ScenarioError
from fleetsim.sim.scenario.resolve import pool_profile, resolve
from fleetsim.sim.scenario.scenario import Scenario
from fleetsim.sim.scenario.schema import scenario_json_schema
from fleetsim.sim.scenario.slo import PercentileTarget, PerRequestTargets, Slo
from fleetsim.sim.scenario.workload import (
    SAMPLE_TRACE,
    Arrivals,
    ClosedLoop,
    Synthetic,
    Workload,
)

__all__ = [
    "SAMPLE_TRACE",
    "Arrivals",
    "Client",
    "ClosedLoop",
    "EngineOptions",
    "Gateway",
    "Measurement",
    "PerRequestTargets",
    "PercentileTarget",
    "PolicyChoice",
    "Pool",
    "PrefixKnowledge",
    "ResultOptions",
    "Router",
    "Scenario",
    "ScenarioError",
    "Slo",
    "Synthetic",
    "Tenant",
    "Workload",
    "default_scenario",
    "engine_settings",
    "fill_engine_options",
    "load_scenario",
    "pool_profile",
    "resolve",
    "resolved_yaml",
    "scenario_json_schema",
]
