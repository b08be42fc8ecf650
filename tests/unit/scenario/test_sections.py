"""Every wrong key and value is told by name, with what would be right."""

from pathlib import Path

import pytest

from fleetsim.sim.scenario import Scenario, ScenarioError, load_scenario
from fleetsim.traces.errors import InputError

PROFILE = "llama-3.1-8b-bf16-tp1-h100"
BASE = f"""\
workload: {{trace: sample}}
pools:
  chat: {{profile: {PROFILE}, replicas: 2}}
"""


def load(tmp_path: Path, more: str = "", *overrides: str, base: str = BASE) -> Scenario:
    path = tmp_path / "fleet.yaml"
    path.write_text(base + more)
    return load_scenario(path, overrides)


def error(tmp_path: Path, more: str = "", *overrides: str, base: str = BASE) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, more, *overrides, base=base)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(tmp_path) + "/", "")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("pool: {}\n", "fleet.yaml:4: pool: is not a key here; did you mean 'pools'?"),
        ("client: {timeout: 3}\n", "client.timeout: is not a key here; did you mean 'timeout_s'?"),
        ("client: {zzz: 3}\n", "client.zzz: is not a key here; valid: network_delay_s, timeout_s"),
        ("seed: eight\n", "fleet.yaml:4: seed: 'eight' is not a whole number"),
        ("seed: true\n", "seed: true is not a whole number"),
        ("seed: 1.0\n", "seed: 1.0 is not a whole number"),
        ("seed: -1\n", "seed: -1 is out of range; give 0 or more"),
        ("name: a/b\n", "name: 'a/b' is not a name; use letters"),
        ("client: {network_delay_s: .nan}\n", "network_delay_s: nan is not a finite number"),
        ("client: {network_delay_s: .inf}\n", "network_delay_s: inf is not a finite number"),
        ("client: {network_delay_s: -1}\n", "network_delay_s: -1 is out of range; give 0 or more"),
        ("client: {network_delay_s: 3 parsecs}\n", "'3 parsecs' is not a duration; give seconds"),
        ("client: {network_delay_s: no}\n", "'no' is not a duration"),
        ("client: {network_delay_s: true}\n", "is not a duration"),
        ("client: 3\n", "client: 3 stands where a mapping of keys to values belongs"),
        ("gateway: {workers: 0}\n", "gateway.workers: 0 is out of range; give 1 or more"),
        ("router: {scrape_interval_s: 0}\n", "0 is out of range; give more than 0"),
        ("router: {log_decisions: 1}\n", "router.log_decisions: 1 is neither true nor false"),
        ("router: {default_pool: chta}\n", "there is no pool 'chta'; did you mean 'chat'?"),
        ("router: {prefix_knowledge: evnts}\n", "give 'none', 'own_history' or 'events'"),
        ("router: {routing: {d: 3}}\n", "router.routing.policy: is missing"),
        ("slo: {percentiles: [{metric: tpot_s, at_most_s: 1}]}\n", "0.percentile: is missing"),
        ("slo: {percentiles: {metric: tpot_s}}\n", "a mapping stands where a list belongs"),
        (
            "slo: {percentiles: [{metric: ttft, percentile: 99, at_most_s: 1}]}\n",
            "slo.percentiles.0.metric: 'ttft' is not a choice here; give 'client_ttft_s',",
        ),
        (
            "slo: {percentiles: [{metric: tpot_s, percentile: 101, at_most_s: 1}]}\n",
            "slo.percentiles.0.percentile: 101 is out of range; give 100 or less",
        ),
        ("slo: {per_request: {ttft_s: 1}}\n", "slo.per_request.ttft_s: is not a key here"),
        (
            "measurement: {warm_up_s: 5m, cool_down_s: 60, horizon_s: 6m}\n",
            "measurement: warm_up_s + cool_down_s (360.0 s) leave nothing of horizon_s (360.0 s)",
        ),
        ("results: {steps: all}\n", "results.steps: 'all' is not a choice here"),
    ],
)
def test_wrong_section(tmp_path: Path, more: str, expected: str) -> None:
    assert expected in error(tmp_path, more)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("{}", "needs exactly one of 'trace' and 'synthetic'; neither is here"),
        (
            "{trace: a.csv, synthetic: {requests: 1, prompt_tokens: 1, output_tokens: 1, "
            "arrivals: {rate_per_s: 1}}}",
            "needs exactly one of 'trace' and 'synthetic'; both are here",
        ),
        ("{trace: ''}", "workload.trace: is empty; give some text"),
        ("{trace: a.csv, time_scale: 0}", "workload.time_scale: 0 is out of range; give more"),
        ("{trace: a.csv, time_scale: '4'}", "workload.time_scale: '4' is not a number"),
        ("{trace: a.csv, head: 0}", "workload.head: 0 is out of range; give 1 or more"),
        ("{trace: a.csv, max_tokens: 0}", "workload.max_tokens: 0 is not a rule; give 'context',"),
        ("{trace: a.csv, max_tokens: all}", "workload.max_tokens: 'all' is not a rule"),
        ("{trace: a.csv, max_tokens: true}", "workload.max_tokens: True is not a rule"),
        ("{trace: a.csv, over_length: clip}", "give 'reject' or 'truncate'"),
        (
            "{trace: a.csv, time_scale: 2, closed_loop: {concurrency: 3}}",
            "time_scale moves arrival times and a closed loop has none",
        ),
        (
            "{synthetic: {requests: 9, prompt_tokens: 8, output_tokens: 2}}",
            "synthetic needs 'arrivals'",
        ),
        (
            "{closed_loop: {concurrency: 3}, synthetic: {requests: 9, prompt_tokens: 8, "
            "output_tokens: 2, arrivals: {rate_per_s: 1}}}",
            "a closed loop has no arrival process",
        ),
        (
            "{time_scale: 2, synthetic: {requests: 9, prompt_tokens: 8, output_tokens: 2, "
            "arrivals: {rate_per_s: 1}}}",
            "for synthetic requests set synthetic.arrivals.rate_per_s",
        ),
        (
            "{format: azure, synthetic: {requests: 9, prompt_tokens: 8, output_tokens: 2, "
            "arrivals: {rate_per_s: 1}}}",
            "format belongs to a trace and there is none",
        ),
        (
            "{synthetic: {requests: 9, prompt_tokens: 8, output_tokens: 2, "
            "arrivals: {rate_per_s: 1, burstiness: 0.5}}}",
            "a poisson process has burstiness 1, not 0.5; set process: gamma",
        ),
        (
            "{synthetic: {requests: 9, prompt_tokens: 8, output_tokens: 2, "
            "random_range_ratio: 1, arrivals: {rate_per_s: 1}}}",
            "random_range_ratio: 1 is out of range; give less than 1",
        ),
    ],
)
def test_wrong_workload(tmp_path: Path, workload: str, expected: str) -> None:
    base = f"workload: {workload}\npools: {{chat: {{profile: {PROFILE}, replicas: 2}}}}\n"
    assert expected in error(tmp_path, base=base)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("pools.chat.replicas=0", "pools.chat.replicas: 0 is out of range; give 1 or more"),
        ("pools.chat.replicsa=1", "pools.chat.replicsa: is not a key here; did you mean 'repl"),
        ("pools.chat.profile=null", "pools.chat.profile: nothing is not text"),
        ("pools={}", "pools: is empty; give at least one"),
        ("pools.my chat={profile: x, replicas: 1}", "'my chat' is not a name"),
        ("pools.chat.gpu_usd_per_hour=-1", "-1 is out of range; give 0 or more"),
        ("pools.chat.engine.max_num_seqs=0", "0 is out of range; give 1 or more"),
        ("pools.chat.engine.gpu_memory_utilization=1.1", "1.1 is out of range; give 1 or less"),
        ("pools.chat.engine.watermark=1", "1 is out of range; give less than 1"),
        ("pools.chat.engine.scheduling_policy=lifo", "give 'fcfs' or 'priority'"),
        ("workload.max_tokens=5000000000", "give 'context', 'output' or a whole number from 1 to"),
        ("pools.chat.engine.engine_version=0.34", "give '0.32' or '0.33'"),
        (
            "pools.chat.engine={max_num_seqs: 64, max_num_batched_tokens: 63}",
            "max_num_batched_tokens (63) must be at least max_num_seqs (64)",
        ),
        (
            "pools.chat.engine={enable_chunked_prefill: false, max_num_batched_tokens: 2048, "
            "max_model_len: 4096}",
            "max_num_batched_tokens (2048) must be at least max_model_len (4096) when chunked",
        ),
        (
            "pools.chat.engine={long_prefill_token_threshold: 5000, max_model_len: 4096}",
            "long_prefill_token_threshold: must be between 0 (off) and max_model_len, got 5000",
        ),
    ],
)
def test_wrong_pool(tmp_path: Path, override: str, expected: str) -> None:
    message = error(tmp_path, "", override)
    assert message.startswith(f"--set {override}: ")
    assert expected in message


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30s", 30.0), ("250ms", 0.25), ("5m", 300.0), ("1.5h", 5400.0), ("2", 2.0), ("1e-3", 1e-3)],
)
def test_durations(tmp_path: Path, written: str, seconds: float) -> None:
    scenario = load(tmp_path, f"client: {{network_delay_s: {written}}}\n")
    assert scenario.client.network_delay_s == pytest.approx(seconds, rel=1e-15)


def test_all_problems_are_listed_and_the_first_is_the_message(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path, "seed: -1\nclient: {timeout_s: 0}\ngateway: {workers: 0}\n")
    assert len(caught.value.problems) == 3
    assert str(caught.value).startswith(caught.value.problems[0])
    assert "and 2 more" in str(caught.value)


def test_a_section_with_nothing_in_it_is_its_defaults(tmp_path: Path) -> None:
    scenario = load(tmp_path, "client:\n  # timeout_s: 3\nmeasurement:\nslo: {per_request: }\n")
    assert scenario.client.timeout_s is None
    assert scenario.measurement.warm_up_s == 0.0


def test_prefix_knowledge_is_a_word_or_a_mapping(tmp_path: Path) -> None:
    word = load(tmp_path, "router: {prefix_knowledge: events}\n")
    both = load(tmp_path, "router: {prefix_knowledge: {source: events, delay_s: 500ms}}\n")
    assert word.router.prefix_knowledge.source == "events"
    assert both.router.prefix_knowledge.delay_s == 0.5


def test_a_scenario_cannot_be_changed_after_it_was_checked(tmp_path: Path) -> None:
    scenario = load(tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        scenario.seed = 3  # type: ignore[misc]
