"""What `fleetsim run` does with whatever becomes of a simulation, the simulation being faked."""

import errno
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fleetsim.cli import main
from fleetsim.sim.scenario import Scenario
from fleetsim.traces.errors import InputError

Simulate = Callable[..., Any]


class Figure:
    def savefig(self, path: Path, **options: Any) -> None:
        path.write_bytes(b"png")


@pytest.fixture
def simulate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Simulate | None], list[Scenario]]:
    """Puts a fake in the simulator's place and collects the scenarios that it is given."""
    monkeypatch.chdir(tmp_path)
    seen: list[Scenario] = []

    def put(outcome: Simulate | None = None) -> list[Scenario]:
        def fake(scenario: Scenario, *, out: Path, progress: Any = None) -> Any:
            seen.append(scenario)
            if outcome is not None:
                return outcome(out, progress)
            return finished(out)

        modules = {
            "fleetsim.sim.simulate": {"simulate": fake},
            "fleetsim.sim.report.table": {"summary_table": lambda result: "THE TABLE"},
            "fleetsim.sim.report.plots": {
                "latency_figure": lambda result: Figure(),
                "timeline_figure": lambda result: Figure(),
            },
        }
        for name, content in modules.items():
            module = ModuleType(name)
            module.__dict__.update(content)
            monkeypatch.setitem(sys.modules, name, module)
        return seen

    return put


def finished(out: Path, status: str = "complete") -> SimpleNamespace:
    out.mkdir(parents=True)
    (out / "status.json").write_text("{}")
    return SimpleNamespace(summary={"requests": 3, "p99": None}, status=status, folder=out)


def test_the_result_alone_is_on_standard_output(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate()
    assert main(["run", "--out", "r"]) == 0
    out, err = capsys.readouterr()
    assert out == "THE TABLE\n"
    assert err == "fleetsim: result in r\n"
    assert sorted(path.name for path in Path("r").iterdir()) == [
        "latency.png",
        "status.json",
        "timeline.png",
    ]


def test_json_is_exactly_one_object(simulate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    simulate()
    assert main(["run", "--json", "--no-plots", "--progress"]) == 0
    assert json.loads(capsys.readouterr().out) == {"requests": 3, "p99": None}
    assert [path.name for path in Path("runs/quickstart-0").iterdir()] == ["status.json"]


def test_results_are_numbered_and_never_overwritten(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate()
    for _ in range(3):
        assert main(["run", "--seed", "7", "--no-plots"]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == [
        "runs/quickstart-7",
        "runs/quickstart-7-2",
        "runs/quickstart-7-3",
    ]
    Path("empty").mkdir()
    simulate(lambda out, progress: SimpleNamespace(summary={}, status="complete", folder=out))
    assert main(["run", "--out", "empty", "--no-plots"]) == 0
    assert main(["run", "--out", "runs/quickstart-7", "--no-plots"]) == 2


def test_options_reach_the_simulation(simulate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seen = simulate()
    changes = ["--set", "pools.chat.replicas=8", "--set", "workload.head=5"]
    assert main(["run", *changes, "--trace", "a b.csv", "--seed", "9", "--no-plots"]) == 0
    assert seen[0].pools["chat"].replicas == 8
    assert (seen[0].workload.head, seen[0].seed) == (5, 9)
    assert seen[0].trace_path() == Path("a b.csv")


def test_progress_goes_to_standard_error_when_asked(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[bool] = []

    def outcome(out: Path, progress: Any) -> Any:
        told.append(progress is not None)
        if progress is not None:
            progress(1.0, 2.0, 10)
            progress(3.0, 2.0, 30)
        return finished(out)

    simulate(outcome)
    assert main(["run", "--progress", "--no-plots"]) == 0
    assert main(["run", "--no-progress", "--no-plots"]) == 0
    assert main(["run", "--no-plots"]) == 0  # pytest's standard error is no terminal
    assert told == [True, False, False]
    assert capsys.readouterr().out == "THE TABLE\n" * 3


def test_an_interrupted_run_shows_what_it_has_and_exits_130(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(lambda out, progress: finished(out, "interrupted"))
    assert main(["run", "--out", "r", "--no-plots"]) == 130
    out, err = capsys.readouterr()
    assert out == "THE TABLE\n"
    assert err.splitlines()[1:] == [
        "fleetsim: this result is partial, and says so",
        "fleetsim: interrupted",
    ]


def test_ctrl_c_elsewhere_exits_130(simulate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def outcome(out: Path, progress: Any) -> Any:
        raise KeyboardInterrupt

    simulate(outcome)
    assert main(["run"]) == 130
    out, err = capsys.readouterr()
    assert (out, err.strip()) == ("", "fleetsim: interrupted")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "r/x.parquet"), "r/x.parquet: No space"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "r"), "r: Permission denied"),
        (InputError("t.csv: row 3: broken"), "t.csv: row 3: broken"),
    ],
)
def test_trouble_from_outside_is_one_line(
    simulate: Any, capsys: pytest.CaptureFixture[str], error: Exception, expected: str
) -> None:
    def outcome(out: Path, progress: Any) -> Any:
        raise error

    simulate(outcome)
    assert main(["run"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"fleetsim: error: {expected}")
    assert err.count("\n") == 1


def test_our_own_mistakes_keep_their_traceback(simulate: Any) -> None:
    def outcome(out: Path, progress: Any) -> Any:
        raise ZeroDivisionError

    simulate(outcome)
    with pytest.raises(ZeroDivisionError):
        main(["run"])
