"""Finding, building and listing policies; errors that help."""

import sys
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

import pytest
from pydantic import BaseModel

from fleetsim.policies import build, describe, find, names, register, registry
from fleetsim.policies.routing.power_of_two import PowerOfTwo
from fleetsim.traces.errors import InputError

WHERE = "fleet.yaml: router.routing"

MINE = '''
from fleetsim.policies import Decision, PolicyParams

class Mine:
    """Mine."""
    needs_scraped = False
    needs_prefix = False
    class Params(PolicyParams):
        index: int = 0
    def __init__(self, params):
        self.index = params.index
    def choose(self, request, pool, draws):
        return Decision(self.index)
'''


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch):
    names("routing")
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def refusal(name, params=None, kind="routing", **kwargs):
    with pytest.raises(InputError) as caught:
        build(kind, name, params, WHERE, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(WHERE)
    return message


def routing_class(name="Mine", **body):
    shape = {
        "needs_scraped": False,
        "needs_prefix": False,
        "choose": lambda self, request, pool, draws: None,
    }
    return type(name, (), shape | body)


# --- names -------------------------------------------------------------------------------------


def test_an_unknown_name_lists_all_and_the_nearest():
    message = refusal("power_of_2")
    assert "no routing policy 'power_of_2'; did you mean 'power_of_two'?" in message
    assert all(name in message for name in names("routing"))
    assert "did you mean" not in refusal("zzz")


def test_kinds_do_not_mix():
    assert "no admission policy 'power_of_two'" in refusal("power_of_two", kind="admission")
    with pytest.raises(ValueError, match="the kinds are routing, admission, limits"):
        names("rooting")


# --- register ----------------------------------------------------------------------------------


def test_a_registered_class_is_found_and_built():
    cls = register("routing", "mine")(routing_class())
    assert find("routing", "mine", WHERE) is cls
    assert isinstance(build("routing", "mine", {}, WHERE), cls)


def test_a_second_class_of_the_same_name_is_refused_with_both_places():
    with pytest.raises(ValueError) as caught:
        register("routing", "power_of_two")(routing_class("Impostor"))
    message = str(caught.value)
    assert "fleetsim.policies.routing.power_of_two:PowerOfTwo, line " in message
    assert "test_registry:Impostor" in message
    assert find("routing", "power_of_two", WHERE) is PowerOfTwo


def test_running_the_same_definition_again_replaces_it():
    register("routing", "mine")(routing_class())
    again = register("routing", "mine")(routing_class())
    assert find("routing", "mine", WHERE) is again


@pytest.mark.parametrize("missing", ["choose", "needs_scraped", "needs_prefix"])
def test_a_class_must_have_what_its_kind_needs(missing):
    cls = routing_class()
    delattr(cls, missing)
    with pytest.raises(TypeError, match=f"cannot be a routing policy: it lacks .* {missing}"):
        register("routing", "mine")(cls)


def test_bad_registrations():
    with pytest.raises(ValueError, match="no policy kind 'rooting'"):
        register("rooting", "mine")
    with pytest.raises(ValueError, match="not an identifier"):
        register("routing", "a:b")
    with pytest.raises(TypeError, match="Params that is not a pydantic model"):
        register("routing", "mine")(routing_class(Params=dict))


# --- parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (
            {"running_wieght": 1},
            ".running_wieght: routing policy 'power_of_two' has no such "
            "parameter; did you mean 'running_weight'? there are d, running_weight, prefix_bonus",
        ),
        ({"d": 0}, ".d: Input should be greater than or equal to 1, not 0"),
        ({"d": "2"}, ".d: Input should be a valid integer, not '2'"),
        ({"d": True}, ".d: Input should be a valid integer, not True"),
        ({"running_weight": float("nan")}, ".running_weight: Input should be a finite number"),
        ({"d": 0, "prefix_bonus": -1}, "(and 1 more)"),
        ({3: 1}, ".3: routing policy 'power_of_two' has no such parameter"),
    ],
)
def test_bad_parameters_name_key_and_remedy(params, expected):
    assert expected in refusal("power_of_two", params)


def test_a_missing_parameter_is_named():
    assert refusal("token_bucket", kind="limits").endswith(".tokens_per_minute: Field required")


def test_a_policy_without_parameters_takes_none():
    assert "routing policy 'round_robin' has no parameters" in refusal("round_robin", {"d": 2})
    assert build("routing", "round_robin", {}, WHERE)


def test_a_plain_pydantic_model_does_not_swallow_unknown_keys():
    class Params(BaseModel):
        weight: float = 1.0

    register("routing", "mine")(routing_class(Params=Params, __init__=lambda self, params: None))
    assert "did you mean 'weight'?" in refusal("mine", {"wieght": 2.0})


def test_integers_serve_as_floats():
    assert build("routing", "power_of_two", {"running_weight": 1}, WHERE)


# --- places ------------------------------------------------------------------------------------


def test_a_file_is_a_place(tmp_path: Path):
    (tmp_path / "mine.py").write_text(MINE)
    policy = build("routing", "mine.py:Mine", {"index": 3}, WHERE, base_dir=tmp_path)
    assert policy.index == 3
    again = build("routing", f"{tmp_path}/mine.py:Mine", None, WHERE)
    assert type(again) is type(policy)


def test_an_edited_file_is_read_again_though_it_registers(tmp_path: Path):
    text = MINE.replace("class Mine", "from fleetsim.policies import register\n"
                        "@register('routing', 'mine')\nclass Mine", 1)  # fmt: skip
    (tmp_path / "mine.py").write_text(text)
    first = find("routing", "mine.py:Mine", WHERE, tmp_path)
    (tmp_path / "mine.py").write_text(text.replace("index: int = 0", "index: int = 5"))
    second = find("routing", "mine.py:Mine", WHERE, tmp_path)
    assert second is not first
    assert second is find("routing", "mine", WHERE)
    assert build("routing", "mine", None, WHERE).index == 5


def test_a_module_is_a_place():
    name = "fleetsim.policies.routing.power_of_two:PowerOfTwo"
    assert isinstance(build("routing", name, {"d": 3}, WHERE), PowerOfTwo)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (MINE, "absent.py:Mine", "no file absent.py (looked in "),
        (MINE, "mine.py:Yours", "mine.py has no Yours"),
        (MINE, "mine.py:", "is not module:Class or path/to/file.py:Class"),
        (MINE, "mine.py:Mine.Params", "cannot be a routing policy: it lacks method choose"),
        (MINE, "mine.py:Decision.target", "is not a class"),
        ("x = 1\n1/0", "mine.py:Mine", "ZeroDivisionError: division by zero (mine.py, line 2)"),
        ("def f(:", "mine.py:Mine", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("", "no_such_module:Mine", "No module named 'no_such_module'"),
    ],
)
def test_bad_places(tmp_path: Path, text, name, expected):
    (tmp_path / "mine.py").write_text(text)
    before = set(sys.modules)
    message = refusal(name, base_dir=tmp_path)
    assert expected in message
    assert not any("no_such" in module for module in set(sys.modules) - before)


# --- plugins of other distributions ------------------------------------------------------------


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch):
    """A distribution on disk with two entry points, one of which cannot be imported."""
    (tmp_path / "acme_router.py").write_text(MINE)
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fleetsim.policies]\nrouting.mine = acme_router:Mine\nrouting.broken = acme_gone:Mine\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield info
    sys.modules.pop("acme_router", None)


@pytest.mark.usefixtures("plugin")
def test_a_plugin_is_imported_when_it_is_named():
    assert {"mine", "broken"} <= set(names("routing"))
    assert "acme_router" not in sys.modules
    build("routing", "least_tokens", None, WHERE)
    assert "acme_router" not in sys.modules
    assert build("routing", "mine", {"index": 2}, WHERE).index == 2
    assert "plugin acme: importing acme_gone failed" in refusal("broken")


def test_a_plugin_cannot_take_a_shipped_name_in_silence(plugin):
    (plugin / "entry_points.txt").write_text(
        "[fleetsim.policies]\nrouting.least_tokens = acme_router:Mine\n"
    )
    message = refusal("least_tokens")
    assert "fleetsim.policies.routing.least_tokens:LeastTokens" in message
    assert "acme_router:Mine of acme" in message
    assert build("routing", "acme_router:Mine", None, WHERE).index == 0


def test_two_plugins_of_one_name_are_refused(monkeypatch):
    class Dist(Distribution):
        def __init__(self, name):
            self._name = name

        def read_text(self, filename):
            return f"Name: {self._name}\n" if filename == "METADATA" else None

        def locate_file(self, path):
            return path

    points = [
        EntryPoint("routing.x", f"{d}:X", registry.ENTRY_POINT_GROUP)._for(Dist(d)) for d in "ba"
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    monkeypatch.setattr(registry, "_points", registry._points.__wrapped__)  # not kept
    with pytest.raises(InputError, match=r"'x' is defined twice: a:X of a and b:X of b"):
        find("routing", "x", WHERE)


# --- listing -----------------------------------------------------------------------------------


def test_describe_lists_every_policy_with_its_parameters():
    infos = {(info.kind, info.name): info for info in describe()}
    assert {name for kind, name in infos if kind == "routing"} == set(names("routing"))
    assert all(info.summary.endswith(".") for info in infos.values())
    params = {param.name: param for param in infos["routing", "power_of_two"].params}
    assert (params["d"].type, params["d"].default) == ("int", "2")
    assert params["d"].description == "replicas to look at"
    budget = infos["limits", "token_bucket"].params
    assert [(p.name, p.type, p.default) for p in budget] == [
        ("tokens_per_minute", "int", "required"),
        ("burst_tokens", "int | None", "None"),
    ]
    assert all(p.description for info in infos.values() for p in info.params)


@pytest.mark.usefixtures("plugin")
def test_describe_shows_a_broken_plugin_instead_of_failing():
    infos = {info.name: info for info in describe("routing")}
    assert infos["mine"].summary == "Mine."
    assert infos["broken"].summary.startswith("cannot be used: ")
