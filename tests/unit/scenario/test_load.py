"""Files that are no scenario, and where an error says it is."""

from pathlib import Path

import pytest

from fleetsim.sim.scenario import ScenarioError, load_scenario
from fleetsim.traces.errors import InputError

TEXT = """\
workload: {trace: sample}
router:
  routing:
    policy: power_of_two
pools:
  chat:
    profile: llama-3.1-8b-bf16-tp1-h100
    replicas: 2
"""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty; `fleetsim init` writes a scenario to start from"),
        (b"# nothing but a comment\n", "is empty; `fleetsim init`"),
        (b"- a\n- b\n", "is not a mapping of keys to values"),
        (b"arrival_s,prompt_tokens\n0,1\n", "a trace is given with --trace"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "is not text (byte 0); a scenario is a UTF-8 YAML file"),
        (b"\xff\xfea\x00", "is not text (byte 0)"),
        (b"a: [1", "fleet.yaml:1: broken YAML"),
    ],
)
def test_what_is_no_scenario(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.yaml: there is no such file"):
        load_scenario(tmp_path / "nothing.yaml")
    with pytest.raises(InputError, match="is a folder; give a scenario file"):
        load_scenario(tmp_path)
    with pytest.raises(InputError, match="cannot be read: "):
        load_scenario(tmp_path / ("x" * 300))


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert load_scenario(path).pools["chat"].replicas == 2


def test_the_name_is_the_files_unless_it_says_another(tmp_path: Path) -> None:
    path = tmp_path / "big-fleet.yaml"
    path.write_text(TEXT)
    assert load_scenario(path).name == "big-fleet"
    path.write_text("name: other\n" + TEXT)
    assert load_scenario(path).name == "other"


def test_a_file_name_that_cannot_name_a_result_needs_a_name(tmp_path: Path) -> None:
    path = tmp_path / "big fleet.yaml"
    path.write_text(TEXT)
    with pytest.raises(ScenarioError, match="name: 'big fleet' is not a name; use letters"):
        load_scenario(path)


@pytest.mark.parametrize(
    ("old", "new", "overrides", "where"),
    [
        ("replicas: 2", "replicas: 0", [], "fleet.yaml:8: pools.chat.replicas"),
        ("    replicas: 2\n", "", [], "fleet.yaml:6: pools.chat.replicas: is missing"),
        ("trace: sample", "trace: 3", [], "fleet.yaml:1: workload.trace"),
        ("power_of_two", "power_of_too", [], "fleet.yaml:4: router.routing: no routing policy"),
        ("", "", ["pools.chat.replicas=0"], "--set pools.chat.replicas=0: pools.chat.replicas"),
        (
            "",
            "",
            ["pools.chat={profile: x}"],
            "--set pools.chat={profile: x}: pools.chat.replicas: is missing",
        ),
        (
            "",
            "",
            ["router.routing.policy=fifo"],
            "--set router.routing.policy=fifo: router.routing: no routing policy 'fifo'",
        ),
        (
            "",
            "",
            ["pools.chat.engine.max_num_seqs=9", "pools.chat.engine.max_num_batched_tokens=8"],
            "--set pools.chat.engine.max_num_seqs=9: pools.chat.engine: max_num_batched_tokens",
        ),
    ],
)
def test_an_error_says_where(
    tmp_path: Path, old: str, new: str, overrides: list[str], where: str
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(TEXT.replace(old, new) if old else TEXT)
    with pytest.raises(InputError) as caught:
        load_scenario(path, overrides)
    assert str(caught.value).replace(str(tmp_path) + "/", "").startswith(where)


def test_an_error_in_a_seed_from_the_command_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--seed -1: seed: -1 is out of range"):
        load_scenario(None, seed=-1)
