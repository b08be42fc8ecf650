"""A profile from recorded steps, and what is refused."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.calibration.step_files import COST, HEADER, made_steps, write_steps

from fleetsim.calibration.fit import predicted_s
from fleetsim.calibration.fit_plot import fit_figure
from fleetsim.calibration.from_steps import StepFit, fit_step_files, supported_knots
from fleetsim.calibration.library import load_profile
from fleetsim.calibration.step_file import read_step_files
from fleetsim.traces.errors import InputError

Steps = list[dict[str, Any]]


def fitted(tmp_path: Path, steps: Steps, header: dict[str, Any] | None = None) -> StepFit:
    return fit_step_files([write_steps(tmp_path / "steps.jsonl", steps, header)], "made")


def test_the_coefficients_of_a_known_cost_come_back(tmp_path: Path) -> None:
    found = fitted(tmp_path, made_steps())
    cost = found.profile.step_cost
    for field in fields(COST):
        if field.name.startswith("per_") and field.name != "per_decode_s":
            expected = getattr(COST, field.name)
            assert getattr(cost, field.name) == pytest.approx(expected, rel=0.02), field.name
    assert found.profile.fit_error is not None
    assert found.profile.fit_error.unseen.worst < 0.01
    assert set(found.profile.fit_error.by_region) == {"decode", "prefill", "mixed"}


def test_the_idle_time_before_a_step_is_not_the_steps(tmp_path: Path) -> None:
    _, steps = read_step_files([write_steps(tmp_path / "steps.jsonl", made_steps())])
    assert steps.seconds.max() < 0.5


def test_a_step_in_flight_when_the_last_request_ended_began_with_that_end(tmp_path: Path) -> None:
    steps = made_steps(3)
    for number, (scheduled_s, done_s) in enumerate(((10.0, 10.4), (10.1, 10.9), (12.0, 12.2))):
        # async: the second is scheduled while the first runs; the third comes after a pause
        steps[number] |= {"scheduled_s": scheduled_s, "done_s": done_s, "running": 0}
    _, table = read_step_files([write_steps(tmp_path / "steps.jsonl", steps)])
    assert table.seconds == pytest.approx([0.4, 0.5, 0.2])


def test_pauses_of_the_host_hardly_matter(tmp_path: Path) -> None:
    steps, late_s = made_steps(noise=0.02), 0.0
    for number, step in enumerate(steps):
        step["scheduled_s"] += late_s
        late_s += 0.3 if number % 40 == 7 else 0.0  # one step in forty is very late
        step["done_s"] += late_s
    found = fitted(tmp_path, steps)
    _, clean = read_step_files([write_steps(tmp_path / "clean.jsonl", made_steps(seed=4))])
    error = predicted_s(found.profile.step_cost, clean) / clean.seconds - 1.0
    assert abs(float(np.median(error))) < 0.04


def test_the_profile_is_a_whole_file_of_the_recorded_engine(tmp_path: Path) -> None:
    found = fitted(tmp_path, made_steps())
    path = tmp_path / "made.json"
    path.write_text(found.profile.to_json())
    profile = load_profile(path)
    assert profile == found.profile
    assert profile.kv_blocks() == HEADER["num_gpu_blocks"]
    assert profile.validity is not None
    assert profile.validity.max_decodes == found.steps.n_decodes.max()


def test_several_recordings_of_one_engine_are_one(tmp_path: Path) -> None:
    paths = [write_steps(tmp_path / f"{seed}.jsonl", made_steps(800, seed=seed)) for seed in (1, 2)]
    assert len(fit_step_files(paths, "made").steps) == 1600
    write_steps(paths[1], made_steps(800), HEADER | {"gpu": "Other GPU"})
    with pytest.raises(InputError, match="gpu is 'Other GPU', but 'Made GPU' in"):
        fit_step_files(paths, "made")


def test_knots_are_only_where_steps_tell_them(tmp_path: Path) -> None:
    _, steps = read_step_files([write_steps(tmp_path / "steps.jsonl", made_steps())])
    knots = supported_knots(steps)
    assert knots[0] == 0
    assert 4096 not in knots
    for low, high in zip(knots, (*knots[1:], 10**9), strict=True):
        assert ((steps.tokens > low) & (steps.tokens <= high)).sum() >= 25


def test_the_diagnostics_show_every_unseen_step_by_region(tmp_path: Path) -> None:
    steps = made_steps(noise=0.02)
    for step in steps[76:100]:  # of the part that is kept from the fit: far off the others
        step["decode_kv_tokens"] *= 40
    found = fitted(tmp_path, steps)
    figure = fit_figure(found)
    unseen = found.steps.take(found.unseen)
    error = (predicted_s(found.profile.step_cost, unseen) / unseen.seconds - 1.0) * 100.0
    assert error.max() > 60.0
    agreement, boxes, by_tokens, by_kv = figure.axes
    assert [tick.get_text() for tick in boxes.get_xticklabels()] == ["decode", "prefill", "mixed"]
    for ax in (boxes, by_tokens, by_kv):
        low, high = ax.get_ylim()
        assert low <= error.min()
        assert error.max() <= high
        assert "fitted less measured" in ax.get_ylabel()
    drawn = [line for line in agreement.lines if line.get_marker() == "."]
    assert sum(len(line.get_xdata()) for line in drawn) == len(unseen)
    figure.savefig(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000


def test_a_recording_given_twice_is_refused(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "steps.jsonl", made_steps(300))
    again = write_steps(tmp_path / "again.jsonl", made_steps(300))
    with pytest.raises(InputError, match="is the same recording as"):
        read_step_files([path, again])


def test_milliseconds_of_a_small_model_are_refused(tmp_path: Path) -> None:
    steps = made_steps()
    milliseconds(steps)
    small = dict(HEADER["model_config"], hidden_size=1536, num_hidden_layers=16)
    small |= {"num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 32000}
    with pytest.raises(InputError, match="must be in seconds"):
        fitted(tmp_path, steps, HEADER | {"model_config": small})


def same_batch(steps: Steps) -> None:
    for step in steps:
        if step["decodes"]:
            step["decode_kv_tokens"] = 8 * (step["decode_kv_tokens"] // step["decodes"])
            step["decodes"] = 8


def same_context(steps: Steps) -> None:
    for step in steps:
        step["decode_kv_tokens"] = 500 * step["decodes"]


def no_prefills(steps: Steps) -> None:
    steps[:] = [step for step in steps if not step["prefills"]]
    for step in steps:
        step["running"] = 0


def milliseconds(steps: Steps) -> None:
    for step in steps:
        step["scheduled_s"] *= 1e3
        step["done_s"] *= 1e3


def thousandths(steps: Steps) -> None:
    for step in steps:
        step["scheduled_s"] *= 1e-3
        step["done_s"] *= 1e-3


def backwards(steps: Steps) -> None:
    steps[20]["done_s"] = steps[19]["done_s"] - 0.1


def nan(steps: Steps) -> None:
    steps[20]["done_s"] = float("nan")


def negative(steps: Steps) -> None:
    steps[20]["decodes"] = -1


def empty(steps: Steps) -> None:
    steps[20]["decodes"], steps[20]["prefills"] = 0, []


def few(steps: Steps) -> None:
    del steps[100:]


def unknown_shape(steps: Steps) -> None:
    steps[20]["prefills"] = [5]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (few, "100 steps are too few"),
        (no_prefills, "steps with prefills are too few"),
        (same_batch, "decode batch size is 8 to 8"),
        (same_context, "context per decode is 500 to 500"),
        (milliseconds, "GB/s; scheduled_s and done_s must be in seconds"),
        (thousandths, "GB/s; scheduled_s and done_s must be in seconds"),
        (backwards, "line 22: done_s is"),
        (nan, "line 22: done_s"),
        (negative, "line 22: decodes"),
        (empty, "line 22: the step has neither"),
        (unknown_shape, "line 22: prefills"),
    ],
)
def test_steps_that_cannot_be_fitted_are_refused(tmp_path: Path, spoil: Any, message: str) -> None:
    steps = made_steps()
    spoil(steps)
    with pytest.raises(InputError, match=message) as refused:
        fitted(tmp_path, steps)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "not the header of a step file"),
        ({"format_version": 2}, "this fleetsim reads 1"),
        ({"scheduling_mode": "both"}, "line 1: scheduling_mode"),
        ({"speculative": True}, "speculative decoding"),
        ({"pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"gpu_memory_bytes": None}, "gpu_memory_bytes is missing"),
        ({"model_config": {"num_experts": 8}}, "mixture of experts"),
        ({"model_config": None}, "model_config"),
    ],
)
def test_engines_that_are_not_priced_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fitted(tmp_path, made_steps(), HEADER | changes)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "steps.jsonl", made_steps())
    whole = path.read_text()
    for text, message in (
        (whole[:-20], r"line 1501 is cut off"),
        (whole.replace("\n", "\n{broken\n", 1), "line 2: is not JSON"),
        (whole + whole, "line 1502: a second recording begins here"),
        ("", "is empty"),
        (json.dumps(HEADER) + "\n", "has no steps"),
        (whole.split("\n", 1)[1], "not the header of a step file"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_step_files([path])
    with pytest.raises(InputError, match="cannot be read"):
        read_step_files([tmp_path / "none.jsonl"])
