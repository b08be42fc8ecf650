"""`workload.transforms`: every transform by its name, in order, with errors that say which key."""

import inspect
from pathlib import Path

import pytest

from fleetsim.sim.build import _load
from fleetsim.sim.scenario import Scenario, load_scenario, resolved_yaml
from fleetsim.sim.scenario.transforms import Transform
from fleetsim.sim.simulate import simulate
from fleetsim.traces import InputError, load_sample, transforms
from fleetsim.traces.transforms import Day, FlashCrowd, Points, Week

SAMPLE = load_sample()
WRITTEN = {
    "{window: {from_s: 1m, to_s: 5m}}": lambda t: transforms.window(t, 60, 300),
    "{head: {requests: 50}}": lambda t: transforms.head(t, 50),
    "{time_scale: {factor: 2}}": lambda t: transforms.time_scale(t, 2),
    "{superpose: {factor: 1.5}}": lambda t: transforms.superpose(t, 1.5, seed=9),
    "{superpose: {factor: 1.5, seed: 4}}": lambda t: transforms.superpose(t, 1.5, seed=4),
    "{thin: {share: 0.5, by: request}}": lambda t: transforms.thin(t, 0.5, seed=9, by="request"),
    "{repeat: {times: 2}}": lambda t: transforms.repeat(t, 2),
    "{dequantize: {tick_s: 1ms}}": lambda t: transforms.dequantize(t, 0.001, seed=9),
    "{dequantize: {}}": lambda t: transforms.dequantize(t, seed=9),
    "{reburst: {cv: 2, bin_s: 30s}}": lambda t: transforms.reburst(t, 2, seed=9, bin_s=30),
    "{modulate: {day: {period_s: 10m}, flash_crowd: {at_s: 60}, bin_s: 2m}}": lambda t: (
        transforms.modulate(t, [Day(period_s=600.0), FlashCrowd(60.0)], bin_s=120)
    ),
    "{modulate: {week: {factors: [1, 1, 1, 1, 1, 2, 3], day_s: 1m}, points: [[0, 1], [1m, 2]]}}": (
        lambda t: transforms.modulate(
            t,
            [
                Week((1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0), day_s=60.0),
                Points(((0.0, 1.0), (60.0, 2.0))),
            ],
        )
    ),
    "{length_map: {column: output_tokens, scale: 2, longest: 900}}": lambda t: (
        transforms.length_map(t, "output_tokens", scale=2, longest=900)
    ),
    "{max_tokens: {tokens: 100, stop_by_length: 0.5}}": lambda t: transforms.limit_outputs(
        t, seed=9, tokens=100, stop_by_length=0.5
    ),
    "{assign: {column: slo_class, weights: {gold: 1, '': 2}}}": lambda t: transforms.assign(
        t, "slo_class", {"gold": 1, "": 2}, seed=9
    ),
    "{assign: {column: tenant, zipf: {count: 3, exponent: 2}, by: request}}": lambda t: (
        transforms.assign(
            t, "tenant", transforms.zipf_weights("tenant", 3, 2), seed=9, by="request"
        )
    ),
    "{attach_sessions: {sessions_per_s: 3, cv: 2}}": lambda t: transforms.attach_sessions(
        t, 3, seed=9, cv=2
    ),
    "{block_bootstrap: {block_s: 2m}}": lambda t: transforms.block_bootstrap(
        t, seed=9, block_s=120
    ),
}


def scenario(tmp_path: Path, steps: str, more: str = "", seed: int = 9) -> Scenario:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        f"seed: {seed}\nworkload: {{trace: sample, transforms: {steps}{more}}}\n"
        "pools: {chat: {profile: llama-3.1-8b-bf16-tp1-h100, replicas: 2}}\n"
    )
    return load_scenario(path)


@pytest.mark.parametrize("written", WRITTEN)
def test_a_transform_of_the_scenario_is_that_of_the_library(tmp_path: Path, written: str) -> None:
    found = _load(scenario(tmp_path, f"[{written}]"))
    expected = WRITTEN[written](SAMPLE)
    assert found.content_hash() == expected.content_hash()
    assert found.metadata == expected.metadata


def test_every_transform_is_tried_above() -> None:
    for name in Transform.model_fields:
        assert any(written.startswith(f"{{{name}: ") for written in WRITTEN), name


def test_sections_have_the_parameters_of_their_functions() -> None:
    other = {"max_tokens": transforms.limit_outputs}
    for name, field in Transform.model_fields.items():
        section = field.annotation.__args__[0]  # type: ignore[union-attr]
        function = other.get(name) or getattr(transforms, name)
        known = set(inspect.signature(function).parameters) - {"trace"}
        said = set(section.model_fields)
        apart = {
            "head": ({"requests"}, {"count"}),
            "modulate": ({"day", "week", "flash_crowd", "points"}, {"curves"}),
            "assign": ({"zipf"}, set()),
        }.get(name, (set(), set()))
        assert said - apart[0] == known - apart[1], name


def test_transforms_follow_one_another_after_head_and_time_scale(tmp_path: Path) -> None:
    steps = "[{thin: {share: 0.5}}, {head: {requests: 100}}]"
    found = _load(scenario(tmp_path, steps, ", head: 1000, time_scale: 2"))
    expected = SAMPLE.head(1000).time_scaled(2)
    expected = transforms.head(transforms.thin(expected, 0.5, seed=9), 100)
    assert found.content_hash() == expected.content_hash()
    names = [step["name"] for step in found.metadata.transforms]
    assert names == ["generate_sample", "head", "time_scale", "thin", "head"]
    keys = _load(scenario(tmp_path, "[]", ", head: 1000, time_scale: 2"))
    steps = "[{head: {requests: 1000}}, {time_scale: {factor: 2}}]"
    assert _load(scenario(tmp_path, steps)).content_hash() == keys.content_hash()


def test_the_scenarios_seed_draws_unless_the_transform_has_its_own(tmp_path: Path) -> None:
    def loaded(steps: str, seed: int) -> str:
        return _load(scenario(tmp_path, steps, seed=seed)).content_hash()

    assert loaded("[{thin: {share: 0.5}}]", 1) != loaded("[{thin: {share: 0.5}}]", 2)
    fixed = "[{thin: {share: 0.5, seed: 8}}]"
    assert loaded(fixed, 1) == loaded(fixed, 2)


def test_synthetic_requests_are_transformed_too(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "workload:\n  synthetic: {requests: 300, prompt_tokens: 50, output_tokens: 5, "
        "arrivals: {rate_per_s: 10}}\n  head: 200\n  transforms:\n"
        "    - assign: {column: tenant, zipf: {count: 4}}\n"
        "pools: {chat: {profile: llama-3.1-8b-bf16-tp1-h100, replicas: 1}}\n"
    )
    trace = _load(load_scenario(path))
    assert trace.tenant is not None
    assert (len(trace), set(trace.tenant.names)) == (200, {f"tenant-{k}" for k in range(1, 5)})


def test_a_run_says_what_was_done_to_its_trace(tmp_path: Path) -> None:
    steps = "[{head: {requests: 100}}, {time_scale: {factor: 2}}, {reburst: {cv: 2}}]"
    about = simulate(scenario(tmp_path, steps)).summary["provenance"]
    assert any(
        line.startswith("reburst cv=2.0 bin_s=60.0 seed=9 re") for line in about["transforms"]
    )
    assert any(note.startswith("time_scale 2 compresses time") for note in about["notes"])


def test_the_resolved_scenario_holds_only_what_was_said(tmp_path: Path) -> None:
    steps = f"[{', '.join(WRITTEN)}]"
    first = scenario(tmp_path, steps)
    text = resolved_yaml(first)
    path = tmp_path / "again.yaml"
    path.write_text(text)
    again = load_scenario(path)
    assert again.workload == first.workload
    assert resolved_yaml(again) == text
    assert "  - window:\n      from_s: 60.0\n      to_s: 300.0\n  - head:\n" in text


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (
            "[{thn: {share: 1}}]",
            "workload.transforms.0.thn: is not a key here; did you mean 'thin'?",
        ),
        (
            "[{thin: {share: 2}}]",
            "workload.transforms.0.thin.share: 2 is out of range; give 1 or le",
        ),
        (
            "[{thin: {shr: 1}}]",
            "workload.transforms.0.thin.shr: is not a key here; did you mean 's",
        ),
        ("[{head: {requests: 3}}, {thin: {}}]", "workload.transforms.1.thin.share: is missing"),
        ("[{}]", "workload.transforms.0: has none; must have exactly one transform, and its"),
        ("[{head: {requests: 1}, repeat: {times: 2}}]", "has head, repeat; must have exactly one"),
        ("{thin: {share: 1}}", "workload.transforms: a mapping stands where a list belongs"),
        (
            "[thin]",
            "workload.transforms.0: 'thin' stands where a mapping of keys to values belongs",
        ),
        ("[{superpose: {factor: 0.5}}]", "0.superpose.factor: 0.5 is out of range; give 1 or more"),
        ("[{reburst: {cv: 0}}]", "workload.transforms.0.reburst.cv: 0 is out of range; give more"),
        (
            "[{modulate: {}}]",
            "workload.transforms.0.modulate: needs a curve: one of 'day', 'week',",
        ),
        ("[{modulate: {week: {factors: [1]}}}]", "0.modulate: week: 1 factors; must be 7, Monday"),
        ("[{modulate: {points: [[5, 1], [1, 1]]}}]", "0.modulate: points: times must rise"),
        ("[{modulate: {points: []}}]", "workload.transforms.0.modulate.points: is empty"),
        ("[{assign: {column: tenant}}]", "0.assign: needs exactly one of 'weights' and 'zipf'"),
        (
            "[{assign: {column: prompt, zipf: {count: 1}}}]",
            "'prompt' is not a choice here; give 'te",
        ),
        ("[{max_tokens: {}}]", "0.max_tokens: needs exactly one of 'tokens' and 'output_factor'"),
    ],
)
def test_wrong_transforms(tmp_path: Path, steps: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        scenario(tmp_path, steps)
    assert says in str(caught.value)
    assert "fleet.yaml:2" in str(caught.value)


def test_what_does_not_fit_the_trace_is_told_with_its_place(tmp_path: Path) -> None:
    made = scenario(tmp_path, "[{head: {requests: 10}}, {window: {from_s: 1h, to_s: 2h}}]")
    with pytest.raises(
        InputError, match=r"workload\.transforms\.1: window 3600 to 7200 s: nothing"
    ):
        simulate(made)


def test_a_closed_loop_has_no_arrivals_to_move(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reburst moves arrival times and a closed loop has none"):
        scenario(tmp_path, "[{reburst: {cv: 2}}]", ", closed_loop: {concurrency: 4}")
    scenario(tmp_path, "[{head: {requests: 9}}]", ", closed_loop: {concurrency: 4}")
