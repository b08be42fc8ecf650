"""The recorder streams to a folder that never looks whole before it is."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fleetsim.sim.results.recorder import Recorder
from fleetsim.sim.results.result import Result
from fleetsim.sim.results.schema import REQUESTS
from fleetsim.traces.errors import InputError

from .fake_run import fake_facts, fake_folder, fake_journeys, record


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_parts_appear_while_the_run_goes_on(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", chunk=100)
    for journey in fake_journeys(250):
        recorder.journey(journey)
    names = sorted(p.name for p in (tmp_path / "run" / "requests").iterdir())
    assert names == ["part-00001.parquet", "part-00002.parquet"]
    assert not (tmp_path / "run" / "status.json").exists()


def test_every_field_comes_back(tmp_path: Path) -> None:
    journeys = fake_journeys(300)
    recorder = Recorder(tmp_path / "run", chunk=64)
    record(recorder, journeys)
    recorder.close(fake_facts(journeys), {}, "complete")
    frame = Result.load(tmp_path / "run").requests()
    assert frame["request_id"].tolist() == list(range(300))
    for name in REQUESTS.names:
        on_request = name in type(journeys[0].request).__slots__
        for j, value in zip(journeys, frame[name].tolist(), strict=True):
            expected = getattr(j.request if on_request else j, name)
            if expected is None or expected != expected:
                assert value is None or value != value, name
            else:
                assert value == expected, name


def test_same_rows_give_same_bytes(tmp_path: Path) -> None:
    first = tree(fake_folder(tmp_path / "a", chunk=128))
    second = tree(fake_folder(tmp_path / "b", chunk=128))
    assert first == second


def test_content_hash_knows_values_not_parts(tmp_path: Path) -> None:
    one = Result.load(fake_folder(tmp_path / "a", chunk=17)).content_hash()
    assert Result.load(fake_folder(tmp_path / "b", chunk=8192)).content_hash() == one
    journeys = fake_journeys(500)
    recorder = Recorder(None)
    record(recorder, journeys)
    recorder.close(fake_facts(journeys), {}, "complete")
    assert Result(recorder.store).content_hash() == one
    journeys[250].first_token_s += 1e-12
    recorder = Recorder(None)
    record(recorder, journeys)
    recorder.close(fake_facts(journeys), {}, "complete")
    assert Result(recorder.store).content_hash() != one


def test_content_hash_tells_null_from_empty_and_not_zero_from_zero() -> None:
    def hash_of(change: str, value: object) -> str:
        journeys = fake_journeys(40)
        owner = journeys[7].request if change == "session" else journeys[7]
        setattr(owner, change, value)
        recorder = Recorder(None)
        for journey in journeys:
            recorder.journey(journey)
        recorder.close(fake_facts(fake_journeys(40)), {}, "complete")
        return Result(recorder.store).content_hash()

    assert hash_of("session", None) != hash_of("session", "")
    assert hash_of("decode_stall_s", 0.0) == hash_of("decode_stall_s", -0.0)
    assert hash_of("admitted_s", float("nan")) == hash_of("admitted_s", -float("nan"))


def test_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        Recorder(tmp_path)
    with pytest.raises(InputError, match="is a file"):
        Recorder(tmp_path / "note.txt")
    (tmp_path / "empty").mkdir()
    Recorder(tmp_path / "empty")


def test_a_run_that_died_says_so(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", chunk=100)
    for journey in fake_journeys(250):
        recorder.journey(journey)
    with pytest.raises(InputError, match=r"died before it ended.*200 rows of requests"):
        Result.load(tmp_path / "run")


def test_interrupted_is_marked(tmp_path: Path) -> None:
    journeys = fake_journeys(50)
    recorder = Recorder(tmp_path / "run")
    record(recorder, journeys)
    recorder.close(fake_facts(journeys), {}, "interrupted")
    assert Result.load(tmp_path / "run").status == "interrupted"


def test_load_refuses_what_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        Result.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        Result.load(tmp_path / "file")
    with pytest.raises(InputError, match="not a result"):
        Result.load(tmp_path)


def test_load_notices_damage(tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "run", chunk=100)
    part = folder / "requests" / "part-00003.parquet"
    content = part.read_bytes()
    part.unlink()
    with pytest.raises(InputError, match=r"'requests': 400.*status\.json says .*'requests': 500"):
        Result.load(folder)
    part.write_bytes(content[:100])
    with pytest.raises(InputError, match=r"part-00003\.parquet: not a Parquet file"):
        Result.load(folder)
    part.write_bytes(content)
    (folder / "status.json").write_text("{")
    with pytest.raises(InputError, match="broken JSON"):
        Result.load(folder)
    (folder / "status.json").write_text(json.dumps({"status": "complete", "schema_version": 99}))
    with pytest.raises(InputError, match="result schema 99"):
        Result.load(folder)


def test_the_status_comes_last_of_all(tmp_path: Path) -> None:
    journeys = fake_journeys(50)
    for blocked in ("summary.json", "itl_histogram.parquet", "replicas.parquet"):
        folder = tmp_path / blocked
        recorder = Recorder(folder)
        record(recorder, journeys)
        (folder / blocked).mkdir()
        with pytest.raises(OSError, match=blocked):
            recorder.close(fake_facts(journeys), {}, "complete")
        assert not (folder / "status.json").exists()
        assert not list(folder.rglob("*.tmp"))


def test_decisions_and_texts_come_back(tmp_path: Path) -> None:
    journeys = fake_journeys(20)
    recorder = Recorder(tmp_path / "run", chunk=8)
    record(recorder, journeys)
    for i in range(20):
        recorder.decision(0.5 * i, i, 1, "chat", i % 2, "fewest tokens", [0.25, 0.75] * (i % 2))
    recorder.text("scenario.resolved.yaml", "seed: 1\n")
    recorder.close(fake_facts(journeys), {}, "complete")
    result = Result.load(tmp_path / "run")
    decisions = result.decisions()
    assert decisions["request_id"].tolist() == list(range(20))
    assert decisions["scores"][1].tolist() == [0.25, 0.75]
    assert (tmp_path / "run" / "scenario.resolved.yaml").read_text() == "seed: 1\n"
    assert result.scaling()["to_state"].tolist() == ["ready"]
    assert result.usage()["requests"].sum() == 20
    assert len(result.content_hash()) == 64


def test_measures_beside_the_fields() -> None:
    journeys = fake_journeys(100)
    recorder = Recorder(None)
    record(recorder, journeys)
    recorder.close(fake_facts(journeys), {}, "complete")
    frame = Result(recorder.store).requests()
    for j, ttft_s, tpot_s in zip(journeys, frame["client_ttft_s"], frame["tpot_s"], strict=True):
        if j.outcome != "completed":
            assert ttft_s != ttft_s
            continue
        assert ttft_s == j.client_first_token_s - j.client_sent_s
        if j.delivered_tokens > 1:
            assert tpot_s == (j.last_token_s - j.first_token_s) / (j.delivered_tokens - 1)
        else:
            assert tpot_s != tpot_s


def test_a_full_disk_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    script = f"""
        import resource, signal, sys
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from pathlib import Path
        from results.fake_run import fake_journeys
        from fleetsim.sim.results.recorder import Recorder
        recorder = Recorder(Path({str(tmp_path / "run")!r}), chunk=1000)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            for journey in fake_journeys(1000):
                recorder.journey(journey)
        except OSError as error:
            print(error)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert "part-00001.parquet" in done.stdout
    assert [p.name for p in (tmp_path / "run").rglob("*")] == ["requests"]
