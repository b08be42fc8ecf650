"""What a scenario names is looked up, and what it leaves out is filled in."""

import json
from pathlib import Path

import pytest

from fleetsim.calibration import load_profile
from fleetsim.sim.scenario import (
    EngineOptions,
    ScenarioError,
    default_scenario,
    engine_settings,
    fill_engine_options,
    load_scenario,
    pool_profile,
    resolve,
)
from fleetsim.traces.errors import InputError

PROFILE = "llama-3.1-8b-bf16-tp1-h100"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["router.routing.policy=fifo"], "no routing policy 'fifo'; there are"),
        (["router.routing.policy=least_token"], "did you mean 'least_tokens'?"),
        (["router.routing.e=3"], "router.routing.e: routing policy 'power_of_two' has no such"),
        (["router.routing.d=two"], "router.routing.d: "),
        (["router.routing.policy=no.such.module:Router"], "importing no.such.module failed"),
        (["router.admission.policy=sometimes"], "no admission policy 'sometimes'"),
        (
            ["gateway.tenants={a: {limits: [{policy: token_bucket}]}}"],
            "gateway.tenants.a.limits.0.tokens_per_minute: Field required",
        ),
        (["gateway.tenants={a: {limits: [{policy: leaky}]}}"], "no limits policy 'leaky'"),
        (["pools.chat.profile=llama-3.1-8b"], "pools.chat.profile: profile 'llama-3.1-8b' is un"),
        (["pools.chat.profile=llama-3.1-8b"], PROFILE),
        (["pools.chat.profile=mine/x.json"], "mine/x.json: cannot be read as a profile: No such"),
        (["pools.chat.engine.kv_cache_dtype=int4"], "kv_cache_dtype: 'int4' is unknown; use auto"),
        (["pools.chat.engine.max_model_len=200000"], "is more than the 131072 of Llama 3.1 8B"),
        (
            ["pools.chat.engine.num_gpu_blocks_override=8000"],
            "max_model_len 131072 needs 8192 KV blocks of 16 tokens, but only 7999 fit",
        ),
        (["pools.chat.engine.gpu_memory_utilization=0.15"], "does not fit: weights take"),
        (
            ["pools.chat.engine.max_num_batched_tokens=512", "pools.chat.engine.max_num_seqs=600"],
            "max_num_batched_tokens (512) must be at least max_num_seqs (600)",
        ),
        (
            ["pools.chat.engine.max_num_seqs=9000"],
            "max_num_batched_tokens (8192) must be at least max_num_seqs (9000)",
        ),
        (
            ["pools.chat.engine={enable_chunked_prefill: false, max_num_batched_tokens: 8192}"],
            "max_num_batched_tokens (8192) must be at least max_model_len (131072) when chunked",
        ),
        (
            [f"pools.two={{profile: {PROFILE}, replicas: 1}}"],
            "pools.two.model: pools chat and two both serve 'meta-llama/Meta-Llama-3.1-8B'",
        ),
    ],
)
def test_what_cannot_run_is_refused(overrides: list[str], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario(None, overrides)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = ["router.routing.policy=a", "router.admission.policy=b", "pools.chat.profile=c"]
    with pytest.raises(ScenarioError) as caught:
        load_scenario(None, wrong)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [
        "--set pools.chat.profile=c",
        "--set router.routing.policy=a",
        "--set router.admission.policy=b",
    ]


def test_defaults_are_filled_in() -> None:
    scenario = default_scenario()
    chat = scenario.pools["chat"]
    assert chat.model == "meta-llama/Meta-Llama-3.1-8B"
    assert chat.gpu_usd_per_hour == load_profile(PROFILE).gpu.usd_per_hour
    assert (chat.engine.max_num_seqs, chat.engine.max_num_batched_tokens) == (1024, 8192)
    assert chat.engine.max_model_len == 131072
    assert scenario.router.routing.params == {"d": 2, "running_weight": 0.5, "prefix_bonus": 1.0}
    assert scenario.router.default_pool == "chat"


def test_what_is_stated_stays() -> None:
    stated = ["gpu_usd_per_hour=0", "model=mine", "engine.max_num_seqs=7"]
    scenario = load_scenario(None, [f"pools.chat.{change}" for change in stated])
    chat = scenario.pools["chat"]
    assert (chat.gpu_usd_per_hour, chat.model, chat.engine.max_num_seqs) == (0.0, "mine", 7)


def test_resolving_again_changes_nothing() -> None:
    scenario = load_scenario(None, ["gateway.tenants={a: {limits: [{policy: unlimited}]}}"])
    assert resolve(scenario).model_dump() == scenario.model_dump()


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, (1024, 8192, 131072)),
        ({"max_num_batched_tokens": 512}, (512, 512, 131072)),
        ({"max_num_seqs": 4, "max_model_len": 100}, (4, 400, 100)),
        ({"max_model_len": 20000, "enable_chunked_prefill": False}, (1024, 20000, 20000)),
        ({"max_model_len": 2}, (1024, 2048, 2)),
    ],
)
def test_vllm_defaults(options: dict[str, int], limits: tuple[int, int, int]) -> None:
    profile = load_profile(PROFILE)
    filled = fill_engine_options(EngineOptions.model_validate(options), profile)
    assert (filled.max_num_seqs, filled.max_num_batched_tokens, filled.max_model_len) == limits
    assert fill_engine_options(filled, profile) == filled
    settings = engine_settings(filled, profile)
    assert (settings.max_num_seqs, settings.max_num_batched_tokens) == limits[:2]


# Not the scheduler's: three make the number of KV blocks, one is the API server's.
ELSEWHERE = (
    *("num_gpu_blocks_override", "gpu_memory_utilization", "kv_cache_dtype"),
    "api_server_count",
)


def test_every_engine_option_reaches_the_engine() -> None:
    options = EngineOptions(
        max_num_seqs=31,
        max_num_batched_tokens=4000,
        max_model_len=3000,
        block_size=32,
        num_gpu_blocks_override=777,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        long_prefill_token_threshold=5,
        watermark=0.25,
        scheduler_reserve_full_isl=False,
        scheduling_policy="priority",
        async_scheduling=False,
        engine_version="0.33",
    )
    settings = engine_settings(options, load_profile(PROFILE))
    assert settings.num_gpu_blocks == 777
    for name in options.model_dump():
        if name not in ELSEWHERE:
            assert getattr(settings, name) == getattr(options, name), name


def test_an_engine_version_need_not_be_quoted() -> None:
    scenario = load_scenario(None, ["pools.chat.engine.engine_version=0.33"])
    assert scenario.pools["chat"].engine.engine_version == "0.33"


@pytest.mark.parametrize(
    "option", [{"gpu_memory_utilization": 0.8}, {"kv_cache_dtype": "fp8"}, {"block_size": 32}]
)
def test_what_changes_kv_memory_changes_the_blocks(option: dict[str, object]) -> None:
    profile = load_profile(PROFILE)
    before = engine_settings(EngineOptions(), profile).num_gpu_blocks
    after = engine_settings(EngineOptions.model_validate(option), profile).num_gpu_blocks
    assert abs(after / before - 1) > 0.1


def test_a_profile_of_ones_own_lies_beside_the_scenario(tmp_path: Path) -> None:
    own = json.loads(load_profile(PROFILE).to_json())
    (tmp_path / "own.json").write_text(json.dumps({**own, "name": "own"}))
    path = tmp_path / "fleet.yaml"
    path.write_text("workload: {trace: sample}\npools: {chat: {profile: own.json, replicas: 1}}\n")
    assert pool_profile(load_scenario(path), "chat").name == "own"
    with pytest.raises(InputError, match=r"own\.json: cannot be read as a profile"):
        load_scenario(path, ["pools.chat.profile=own.json"])


def test_a_router_of_ones_own_lies_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fleetsim.policies.base import Decision\n"
        "class First:\n"
        "    needs_scraped = needs_prefix = False\n"
        "    def choose(self, request, pool, draws):\n"
        "        return Decision(0)\n"
    )
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "workload: {trace: sample}\nrouter: {routing: {policy: 'mine.py:First'}}\n"
        f"pools: {{chat: {{profile: {PROFILE}, replicas: 1}}}}\n"
    )
    assert load_scenario(path).router.routing.policy == "mine.py:First"
