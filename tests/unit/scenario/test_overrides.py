"""`--set`, `--trace` and `--seed` change a scenario before it is checked."""

from pathlib import Path

import pytest

from fleetsim.sim.scenario import load_scenario
from fleetsim.traces.errors import InputError

TEXT = """\
workload: {trace: mine.csv, format: azure}
router:
  routing: {policy: power_of_two, d: 3}
pools:
  chat: {profile: llama-3.1-8b-bf16-tp1-h100, replicas: 2}
slo:
  percentiles:
    - {metric: tpot_s, percentile: 90, at_most_s: 50ms}
gateway:
  tenants:
    "*": {limits: [{policy: token_bucket, tokens_per_minute: 60000}]}
"""
SYNTHETIC = "{requests: 5, prompt_tokens: 8, output_tokens: 2, arrivals: {rate_per_s: 4}}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("pools.chat.replicas=8", "pools.chat.replicas", 8),
        ("pools.chat.engine.max_num_seqs=64", "pools.chat.engine.max_num_seqs", 64),
        ("pools.big={profile: llama-3.1-70b-fp8-tp4-h100, replicas: 1}", "pools.big.replicas", 1),
        ("slo.percentiles.0.at_most_s=80ms", "slo.percentiles.0.at_most_s", 0.08),
        ("router.prefix_knowledge=none", "router.prefix_knowledge.source", "none"),
        ("router.routing.d=4", "router.routing.d", 4),
        ("router.admission.policy=always", "router.admission.policy", "always"),
        ("gateway.tenants.*.limits.0.tokens_per_minute=9", "router.routing.d", 3),
        ("slo.percentiles=[]", "slo.percentiles", []),
        (" seed = 7", "seed", 7),
        ("measurement.horizon_s=null", "measurement.horizon_s", None),
    ],
)
def test_sets(path: Path, override: str, key: str, value: object) -> None:
    here = load_scenario(path, [override]).model_dump(mode="json")
    for step in key.split("."):
        here = here[int(step)] if isinstance(here, list) else here[step]
    assert here == value


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("pools.chat.replicas", "is not a change; write it as a.b=value"),
        ("=8", "is not a change; write it as a.b=value"),
        ("pools..replicas=8", "is not a change; write it as a.b=value"),
        ("pools.chta.replicas=8", "there is no pool 'chta'; did you mean 'chat'?"),
        ("gateway.tenants.acme.limits=[]", "there is no tenant 'acme'; valid: *"),
        ("seed.more=8", "seed: a mapping is not a whole number"),
        ("pools.chat.replicas.x=8", "pools.chat.replicas is 2 and holds no keys"),
        ("slo.percentiles.1.at_most_s=8", "slo.percentiles is a list of 1; name one by its"),
        ("slo.percentiles.x=8", "slo.percentiles is a list of 1; name one by its"),
        ("client.network_delay_s=[1", ":1: broken YAML"),
    ],
)
def test_what_cannot_be_set_says_why(path: Path, override: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario(path, [override])
    assert str(caught.value).startswith(f"--set {override}")
    assert expected in str(caught.value)


def test_later_overrides_win(path: Path) -> None:
    scenario = load_scenario(path, ["pools.chat.replicas=8", "pools.chat.replicas=9"])
    assert scenario.pools["chat"].replicas == 9


def test_another_policy_starts_from_its_own_defaults(path: Path) -> None:
    assert load_scenario(path).router.routing.params["d"] == 3
    other = load_scenario(path, ["router.routing.policy=least_tokens"])
    assert other.router.routing.params == {}
    same = load_scenario(path, ["router.routing.policy=power_of_two"])
    assert same.router.routing.params["d"] == 3


def test_parameters_on_the_command_line_belong_to_the_new_policy(path: Path) -> None:
    wanted = ["router.routing.load_factor=2.0", "router.routing.policy=prefix_affinity"]
    for overrides in (wanted, wanted[::-1]):
        routing = load_scenario(path, overrides).router.routing
        assert routing.policy == "prefix_affinity"
        assert routing.params["load_factor"] == 2.0


def test_a_parameter_alone_changes_the_default_policy(path: Path) -> None:
    path.write_text(TEXT.replace("routing: {policy: power_of_two, d: 3}", "log_decisions: true"))
    assert load_scenario(path, ["router.routing.d=4"]).router.routing.params["d"] == 4


def test_trace_and_synthetic_take_each_others_place(path: Path) -> None:
    made_up = load_scenario(path, [f"workload.synthetic={SYNTHETIC}"])
    assert made_up.workload.trace is None
    assert made_up.workload.format is None
    path.write_text(TEXT.replace("{trace: mine.csv, format: azure}", f"{{synthetic: {SYNTHETIC}}}"))
    assert load_scenario(path, trace="sample").workload.synthetic is None
    kept = load_scenario(path, ["workload.synthetic.requests=6"]).workload.synthetic
    assert kept is not None
    assert (kept.requests, kept.prompt_tokens) == (6, 8)


def test_another_trace_forgets_the_old_format_but_not_a_new_one(path: Path) -> None:
    assert load_scenario(path, trace="sample").workload.format is None
    both = load_scenario(path, ["workload.format=mooncake"], trace="b.jsonl")
    assert both.workload.format == "mooncake"


def test_paths_in_the_file_are_beside_it_and_those_typed_are_here(path: Path) -> None:
    assert load_scenario(path).trace_path() == path.parent / "mine.csv"
    assert load_scenario(path, trace="its/here.csv").trace_path() == Path("its/here.csv")
    assert load_scenario(path, ["workload.trace=it.csv"]).trace_path() == Path("it.csv")
    assert load_scenario(path, ["workload={trace: it.csv}"]).trace_path() == Path("it.csv")
    assert load_scenario(path, ["workload.head=3"]).trace_path() == path.parent / "mine.csv"
    assert load_scenario(path, trace="sample").trace_path() is None


def test_trace_and_seed_are_taken_literally(path: Path) -> None:
    scenario = load_scenario(path, trace="a: #b.csv", seed=11)
    assert scenario.workload.trace == "a: #b.csv"
    assert scenario.seed == 11
