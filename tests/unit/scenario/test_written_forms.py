"""The resolved YAML, the JSON Schema, the template and the docs all tell the same story."""

import re
import types
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_core import PydanticUndefined

from fleetsim.sim.scenario import (
    PolicyChoice,
    Scenario,
    default_scenario,
    load_scenario,
    resolved_yaml,
    scenario_json_schema,
)
from fleetsim.sim.scenario.section import Section
from fleetsim.sim.scenario.template import TEMPLATE
from fleetsim.sim.scenario.yaml_text import parse_yaml

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "scenarios").glob("*.yaml"))


def keys(model: type[Section], prefix: str = "") -> list[tuple[str, str]]:
    """Every key of a scenario with its default as YAML, in order."""
    found = []
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        inner, mark = section_in(field.annotation)
        if inner is not None and inner is not PolicyChoice:
            found += keys(inner, f"{key}{mark}.")
            continue
        default = field.get_default(call_default_factory=True)
        if isinstance(default, PolicyChoice):
            shown = default.policy
        elif default is PydanticUndefined:
            shown = "" if key == "name" else "required"
        else:
            shown = "" if default is None else yaml.safe_dump(default).split("\n")[0]
        found.append((key, shown if default != () else "[]"))
    return found


def section_in(annotation: Any) -> tuple[type[Section] | None, str]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation, ""
    if origin is dict:
        return section_in(arguments[1])[0], ".NAME"
    if origin is tuple:
        return section_in(arguments[0])[0], ".N"
    if origin in (typing.Union, types.UnionType):
        return section_in(arguments[0])
    return None, ""


def test_resolved_yaml_is_the_same_scenario(tmp_path: Path) -> None:
    scenario = load_scenario(
        None,
        [
            "gateway.tenants={'*': {limits: [{policy: token_bucket, tokens_per_minute: 60000}]}}",
            "workload.synthetic={requests: 5, prompt_tokens: 8, output_tokens: 2, "
            "arrivals: {process: gamma, rate_per_s: 4, burstiness: 0.5}}",
            "router.prefix_knowledge={source: events, delay_s: 250ms}",
        ],
    )
    path = tmp_path / "quickstart.yaml"
    path.write_text(resolved_yaml(scenario))
    again = load_scenario(path)
    assert again.model_dump() == scenario.model_dump()
    assert resolved_yaml(again) == path.read_text()


def test_resolved_yaml_has_every_key_and_no_path_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(TEMPLATE.replace("trace: sample", "trace: mine.csv"))
    text = resolved_yaml(load_scenario(path))
    assert str(tmp_path) not in text
    assert "trace: mine.csv" in text
    data = yaml.safe_load(text)
    assert list(data) == list(Scenario.model_fields)
    assert data["workload"]["over_length"] == "reject"


def test_the_template_is_the_default_scenario_and_the_shipped_quickstart() -> None:
    assert (ROOT / "scenarios" / "quickstart.yaml").read_text() == TEMPLATE
    quickstart = load_scenario(ROOT / "scenarios" / "quickstart.yaml")
    assert quickstart.model_dump() == default_scenario().model_dump()


def test_the_template_explains_every_key() -> None:
    for key, _ in keys(Scenario):
        assert key.rpartition(".")[2] in TEMPLATE, key


@pytest.mark.parametrize(
    "dropped", [("synthetic", "closed_loop"), ("trace", "format", "time_scale", "closed_loop")]
)
def test_what_the_template_comments_out_is_right(tmp_path: Path, dropped: tuple[str, ...]) -> None:
    data, _ = parse_yaml(re.sub(r"(?m)^(?:( +)#  |#  (?=\w+: ))", r"\1", TEMPLATE), "template")
    for key in dropped:
        del data["workload"][key]
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump(data))
    scenario = load_scenario(path)
    assert scenario.pools["chat"].engine.num_gpu_blocks_override == 27000
    assert scenario.gateway.tenants["*"].limits[0].params["burst_tokens"] == 100000
    assert scenario.measurement.horizon_s == 3600.0
    shown = {key for key, _ in keys(Scenario) if not key.startswith("workload.")}
    assert {key for key in shown if not written_in(data, key.split("."))} <= {
        "router.prefix_knowledge.source",
        "router.prefix_knowledge.delay_s",
        "slo.percentiles.N.max_prompt_tokens",
    }


def written_in(data: Any, steps: list[str]) -> bool:
    for step in steps:
        if step == "NAME":
            data = next(iter(data.values()))
        elif step == "N":
            data = data[0]
        elif not isinstance(data, dict) or step not in data:
            return False
        else:
            data = data[step]
    return True


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_scenarios_are_valid(path: Path) -> None:
    assert load_scenario(path).name == path.stem


def test_the_schema_accepts_what_we_ship_and_refuses_what_we_refuse() -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    schema = scenario_json_schema()
    validator.check_schema(schema)
    check = validator(schema)
    for path in SHIPPED:
        data = yaml.safe_load(path.read_text())
        assert not list(check.iter_errors(data)), path
        assert not list(check.iter_errors({k: v for k, v in data.items() if k != "name"}))
        assert list(check.iter_errors({**data, "pool": {}}))
        assert list(check.iter_errors({**data, "seed": "eight"}))
    data["client"] = {"network_delay_s": "30 parsecs"}
    assert list(check.iter_errors(data))


def test_the_schema_describes_every_key() -> None:
    for name, definition in scenario_json_schema()["$defs"].items():
        for key, field in definition["properties"].items():
            assert field.get("description"), f"{name}.{key}"


def test_the_docs_list_every_key_with_its_default() -> None:
    text = (ROOT / "docs" / "scenario.md").read_text()
    for key, default in keys(Scenario):
        row = f"| `{key}` | {f'`{default}`' if default else ''} |"
        assert row in text, row


def test_the_smallest_scenario_of_the_docs_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "scenario.md").read_text()
    path = tmp_path / "fleet.yaml"
    path.write_text(text.split("```yaml\n")[1].split("```")[0])
    assert load_scenario(path).pools["chat"].replicas == 4
