"""What docs/policies.md shows works, and its tables list what is shipped."""

import re
from pathlib import Path

import pytest
from unit.policies.fakes import DRAWS, FakeRequest, pool_of

from fleetsim.policies import build, describe, registry

DOC = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8")


def test_the_example_router_runs(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    (tmp_path / "lanes.py").write_text(re.search(r"```python\n(.*?)```", DOC, re.S).group(1))
    policy = build("routing", "lanes.py:Lanes", {"long_prompt_tokens": 8192}, "doc", tmp_path)
    for n in (1, 2, 3, 8):
        pool = pool_of(n)
        short = {policy.choose(FakeRequest(i), pool, DRAWS).target for i in range(100)}
        long = {
            policy.choose(FakeRequest(i, prompt_tokens=9000), pool, DRAWS).target
            for i in range(100)
        }
        assert short | long == set(range(n))
        assert n == 1 or not short & long


@pytest.mark.parametrize("info", describe(), ids=lambda info: info.name)
def test_the_tables_list_every_policy_and_parameter(info):
    row = re.search(rf"^\| `{info.name}` .*$", DOC, re.M).group(0)
    assert ("deliberately bad" in row) == info.summary.startswith("DELIBERATELY BAD")
    if info.name == "reserve_only":
        return
    for param in info.params:
        assert re.search(rf"`{param.name}` \({param.default}[):]", row), param
    assert len(re.findall(r"`\w+` \(", row)) == len(info.params)
