"""Finding and reading profiles, whole ones and broken ones."""

import json

import pytest

from fleetsim.calibration import StepCostParameters, analytic_profile, load_profile
from fleetsim.sim.engine.step_cost import StepCost
from fleetsim.traces.errors import InputError

NAME = "llama-3.1-8b-bf16-tp1-h100"


@pytest.fixture
def broken(tmp_path):
    """Writes the 8B profile after a change to its content, and returns the path."""

    def write(change):
        content = json.loads(load_profile(NAME).to_json())
        change(content)
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(content))
        return path

    return write


def test_a_profile_survives_its_own_file(broken):
    assert load_profile(broken(lambda content: None)) == load_profile(NAME)


def test_an_edited_price_is_taken(broken):
    path = broken(lambda content: content["gpu"].update(usd_per_hour=1.5))
    assert load_profile(str(path)).usd_per_hour() == 1.5


def test_an_unknown_name_gets_the_nearest_names():
    with pytest.raises(InputError, match=f"'llama-8b-h100' is unknown; nearest: .*{NAME}"):
        load_profile("llama-8b-h100")
    with pytest.raises(InputError, match=f"shipped: .*{NAME}"):
        load_profile("?")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("gpu"), r"gpu: Field required"),
        (lambda c: c["step_cost"].pop("decode_s"), r"step_cost\.decode_s: this key is missing"),
        (lambda c: c["engine_defaults"].pop("block_size"), r"engine_defaults\.block_size: this"),
        (lambda c: c.update(colour="red"), r"colour: Extra inputs"),
        (lambda c: c["step_cost"].update(colour=1), r"step_cost\.colour: Unexpected"),
        (lambda c: c["step_cost"].update(decode_s=float("nan")), r"step_cost\.decode_s: .*finite"),
        (
            lambda c: c["api_server"].update(latency_s=float("inf")),
            r"api_server\.latency_s: .*finite",
        ),
        (lambda c: c["step_cost"].update(prefill_s=-1e-3), r"step_cost: prefill_s: must be"),
        (lambda c: c["step_cost"].update(token_knots=[0, 0]), r"step_cost: token_knots: must rise"),
        (lambda c: c["model"].update(num_layers="32"), r"model\.num_layers: .*integer"),
        (lambda c: c["model"].update(num_layers=0), r"model\.num_layers: .*greater"),
        (lambda c: c["host_work"].pop(), r"host_work lacks sync"),
        (lambda c: c["host_work"][0].update(mode="eager"), r"host_work\.0\.mode: .*'async'"),
        (lambda c: c.update(format_version=1), r"format_version is 1; this fleetsim reads 2"),
        (lambda c: c.update(kv_cache_dtype="int4"), r"kv_cache_dtype must be one of"),
        (lambda c: c.update(gpus_per_replica=2), r"must equal gpus_per_replica"),
        (lambda c: c["engine_defaults"].update(block_size=0), r"engine_defaults: block_size"),
    ],
)
def test_a_broken_file_is_refused_by_name_and_key(broken, change, says):
    with pytest.raises(InputError, match=rf"mine\.json: .*{says}") as refused:
        load_profile(broken(change))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x89PNG\r\n\x1a\n\x00\xff", b'{"a": 1'])
def test_files_that_are_no_profile_are_refused(tmp_path, content):
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.json: ") as refused:
        load_profile(path)
    assert "\n" not in str(refused.value)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: cannot be read as a profile: No such file"):
        load_profile(tmp_path / "none.json")
    with pytest.raises(InputError, match="Is a directory"):
        load_profile(tmp_path)


def test_a_stated_profile_has_the_blocks_and_the_step_that_it_states():
    profile = analytic_profile(StepCostParameters(constant_s=0.02), num_gpu_blocks=500)
    assert profile.kv_blocks() == 500
    assert profile.kv_blocks(profile.engine_settings(max_num_seqs=1)) == 500
    assert StepCost.from_profile(profile).decode_step_s(7, 10_000) == 0.02
    assert profile.fit_error is None
