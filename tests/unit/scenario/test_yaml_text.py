"""YAML without surprises: core types, no duplicates, every fault with its line."""

import pytest

from fleetsim.sim.scenario.yaml_text import parse_yaml
from fleetsim.traces.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("1e-3", 1e-3),
        ("1e3", 1e3),
        ("-.5", -0.5),
        ("1_000", 1000),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("007", 7.0),
        ("'8'", "8"),
        ("30s", "30s"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    parsed, _ = parse_yaml(f"a: {text}", "x")
    assert parsed == {"a": value}
    assert type(parsed["a"]) is type(value)


def test_lines_are_remembered() -> None:
    _, lines = parse_yaml("a:\n  b: 1\n\n  c:\n    - 5\n    - {d: 6}\n", "x")
    assert lines[("a",)] == 1
    assert lines[("a", "b")] == 2
    assert lines[("a", "c", 1)] == 6
    assert lines[("a", "c", 1, "d")] == 6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1\nb: 2\n", "f.yaml:2: broken YAML: expected ',' or ']', but got ':'"),
        ("a: 1\n\tb: 2\n", "f.yaml:2: broken YAML: found character '\\t' that cannot start"),
        ("a: *nothing", "f.yaml:1: broken YAML: found undefined alias 'nothing'"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: broken YAML: but found another document"),
        ("a: !!python/object:os.system x", "f.yaml:1: broken YAML: could not determine a constr"),
        ("a: \x07", "f.yaml: broken YAML: unacceptable character"),
        ("a: 1\nb:\n  c: 2\n  c: 3\n", "f.yaml:4: b.c: is here twice, first on line 3; keep one"),
        ("1: 2", "f.yaml:1: a key is not text: 1; put it in quotes"),
        ("[a, b]: 2", "f.yaml:1: a key is not text: a list or mapping"),
        ("a: &a [*a]", "f.yaml:1: nested or repeated beyond reason"),
        ("a: " + "[" * 500, "f.yaml: nested too deeply"),
        (
            "\n".join(
                ["a0: &a0 [1]"]
                + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
            ),
            "nested or repeated beyond reason",
        ),
    ],
)
def test_faults_name_their_line(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "f.yaml")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_alias_is_the_value_it_stands_for() -> None:
    assert parse_yaml("a: &x {b: 1}\nc: *x", "f")[0] == {"a": {"b": 1}, "c": {"b": 1}}
