"""Exports of Prometheus: read whole, or refused in one line that says where and why."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetsim.sim.backtest.openmetrics import openmetrics_text
from fleetsim.sim.backtest.prometheus_dump import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    ITL,
    KV_USAGE,
    RUNNING,
    TTFT,
    Dump,
    Series,
    read_dump,
)
from fleetsim.traces.errors import InputError

from . import fleets

TIMES_S = np.array([1_764_000_000.0, 1_764_000_015.0, 1_764_000_030.25])


def small_dump() -> Dump:
    """Two replicas, three scrapes."""
    series: dict[str, dict[Any, Series]] = {}
    for replica in range(2):
        labels = (("engine", "0"), ("instance", f'10.0.0.{replica}:8000 "b\\c"'), ("job", "vllm"))
        for name in GAUGES:
            series.setdefault(name, {})[labels] = Series(TIMES_S, np.array([0.1, 0.0, 0.25]))
        for name in COUNTERS:
            series.setdefault(name, {})[labels] = Series(TIMES_S, np.array([0.0, 7.0, 1e6 + 1]))
        for name in HISTOGRAMS:
            series.setdefault(name + "_sum", {})[labels] = Series(TIMES_S, np.array([0, 0.5, 1.7]))
            counts = Series(TIMES_S, np.array([0.0, 2.0, 5.0]))
            series.setdefault(name + "_count", {})[labels] = counts
            for le in ("0.1", "1.0", "+Inf"):
                full = tuple(sorted((*labels, ("le", le))))
                series.setdefault(name + "_bucket", {})[full] = counts
    return Dump("small", series)


def same(one: Dump, other: Dump) -> bool:
    return one.series.keys() == other.series.keys() and all(
        one.series[name].keys() == other.series[name].keys()
        and all(
            np.array_equal(series.times_s, other.series[name][labels].times_s)
            and np.array_equal(series.values, other.series[name][labels].values, equal_nan=True)
            for labels, series in one.series[name].items()
        )
        for name in one.series
    )


def test_both_formats_hold_the_same(tmp_path: Path) -> None:
    dump = small_dump()
    assert same(read_dump(fleets.write_openmetrics(tmp_path / "a.om", dump)), dump)
    assert same(read_dump(fleets.write_answer(tmp_path / "a.json", dump)), dump)


def test_one_answer_a_query_in_files_lists_or_lines(tmp_path: Path) -> None:
    dump = small_dump()
    answers = [json.dumps(fleets.answer(dump, name)) for name in dump.series]
    folder = tmp_path / "folder"
    folder.mkdir()
    for index, text in enumerate(answers):
        (folder / f"{index}.json").write_text(text)
    (folder / ".DS_Store").write_text("no export")
    assert same(read_dump(folder), dump)
    lines = tmp_path / "lines"
    lines.write_text("\n".join(answers) + "\n")
    assert same(read_dump(lines), dump)
    one = tmp_path / "list.json"
    one.write_text(f"[{', '.join(answers)}]")
    assert same(read_dump(one), dump)


def test_a_long_time_in_pieces_is_joined(tmp_path: Path) -> None:
    """query_range gives at most 11,000 points a series; pieces may overlap, in any order."""
    dump = small_dump()

    def piece(part: slice) -> Dump:
        return Dump(
            "piece",
            {
                name: {k: Series(s.times_s[part], s.values[part]) for k, s in series.items()}
                for name, series in dump.series.items()
            },
        )

    fleets.write_answer(tmp_path / "a.json", piece(slice(1, None)))
    fleets.write_answer(tmp_path / "b.json", piece(slice(None, 2)))
    assert same(read_dump(tmp_path), dump)


def test_a_series_without_samples_says_nothing(tmp_path: Path) -> None:
    value = fleets.answer(small_dump())
    metric = {"__name__": RUNNING, "instance": "gone", "engine": "0"}
    value["data"]["result"].append({"metric": metric, "values": []})
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert same(read_dump(tmp_path / "a.json"), small_dump())


def test_what_promtool_writes_is_read(tmp_path: Path) -> None:
    """No types, series one after the other, in the order of the database, others among them."""
    dump = small_dump()
    lines = [
        f"{name}{{{','.join(f'{k}={json.dumps(v)}' for k, v in labels)}}} {value:g} {time:.3f}"
        for index in (1, 0)
        for name, by_labels in dump.series.items()
        for labels, series in list(by_labels.items())[index::2]
        for time, value in zip(series.times_s, series.values, strict=True)
    ]
    lines.insert(3, 'up{instance="10.0.0.1:8000"} 1 1764000000.000')
    path = tmp_path / "dump.om"
    path.write_text("\n".join([*lines, "# EOF"]) + "\n")
    read = read_dump(path)
    assert read.series.keys() == dump.series.keys()
    assert same(Dump("", {RUNNING: read.of(RUNNING)}), Dump("", {RUNNING: dump.of(RUNNING)}))


def test_exemplars_and_braces_in_labels_are_read(tmp_path: Path) -> None:
    path = fleets.write_openmetrics(tmp_path / "a.om", small_dump())
    text = (
        path.read_text()
        .replace("10.0.0.0:8000", "{10}, x=")
        .replace(" 2 1764000015.000\n", ' 2 1764000015.000 # {trace_id="a}b"} 0.05 1764000014.5\n')
    )
    path.write_text(text)
    read = read_dump(path)
    assert {dict(labels)["instance"][:8] for labels in read.of(RUNNING)} == {"{10}, x=", "10.0.0.1"}
    assert next(iter(read.of(TTFT + "_bucket").values())).values.tolist() == [0.0, 2.0, 5.0]


def test_older_names_stand_for_newer_ones(tmp_path: Path) -> None:
    dump = small_dump()
    text = "".join(openmetrics_text(dump))
    older = (
        text.replace("inter_token_latency_seconds", "time_per_output_token_seconds")
        .replace("kv_cache_usage_perc", "gpu_cache_usage_perc")
        .replace("vllm:prefix_cache", "vllm:gpu_prefix_cache")
    )
    path = tmp_path / "old.om"
    path.write_text(older)
    assert same(read_dump(path), dump)
    path.write_text(older.replace("vllm:", "vllm_"))
    assert same(read_dump(path), dump)
    # 0.11 and 0.12 have both; the newer one counts
    both = [
        line.replace(KV_USAGE, "vllm:gpu_cache_usage_perc").replace(" 0.25 ", " 1 ")
        for line in text.splitlines()
        if line.startswith(KV_USAGE)
    ]
    path.write_text("\n".join(both) + "\n" + text)
    assert dict(read_dump(path).of(KV_USAGE)).popitem()[1].values[-1] == 0.25


def test_a_stale_marker_is_kept_as_a_gap(tmp_path: Path) -> None:
    dump = small_dump()
    labels = next(iter(dump.of(RUNNING)))
    dump.series[RUNNING][labels] = Series(TIMES_S, np.array([1.0, np.nan, 2.0]))
    for path in (
        fleets.write_openmetrics(tmp_path / "a.om", dump),
        fleets.write_answer(tmp_path / "a.json", dump),
    ):
        assert same(read_dump(path), dump)


def edit(change: Callable[[str], str]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = fleets.write_openmetrics(folder / "x.om", small_dump())
        path.write_text(change(path.read_text()))
        return path

    return write


def edit_json(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "x.json"
        value = fleets.answer(small_dump())
        path.write_text(json.dumps(change(value) or value))
        return path

    return write


def without_name(value: dict[str, Any]) -> None:
    del value["data"]["result"][0]["metric"]["__name__"]


def native(value: dict[str, Any]) -> None:
    value["data"]["result"][0]["histograms"] = value["data"]["result"][0].pop("values")


def torn_sample(value: dict[str, Any]) -> None:
    value["data"]["result"][0]["values"][1] = [1764000015, None]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (edit(lambda text: text[: len(text) // 2]), "does not end with '# EOF'"),
        (edit(lambda text: ""), "does not end with '# EOF'"),
        (edit(lambda text: text.replace(" 1764000015.000", "", 1)), "line 8: .* has no time"),
        (edit(lambda text: text.replace("1764000015.000", "17640000l5")), "is not 'name"),
        (edit(lambda text: text.replace(".000\n", "000.0\n")), "in milliseconds"),
        (edit(lambda text: text.replace('engine="0"', "engine=0")), "labels .* are not"),
        (edit(lambda text: '{__name__="vllm:x"} 1 2\n' + text), "promtool tsdb dump"),
        (edit(lambda text: text.replace(" 7 ", " -7 ")), "the value -7"),
        (edit(lambda text: text.replace(" 7 ", " +Inf ")), "the value inf"),
        (edit(lambda text: text.replace(RUNNING, "up")), f"{RUNNING} missing"),
        (edit(lambda text: text.replace(ITL + "_sum", "x")), f"{ITL}_sum missing"),
        (edit(lambda text: text.replace("vllm:", "other:")), "found: no series of vLLM"),
        (
            edit_json(lambda v: {"status": "error", "errorType": "bad_data", "error": "too many"}),
            "answer 1: Prometheus answered with an error: bad_data: too many",
        ),
        (edit_json(lambda v: {"data": []}), "has no status"),
        (
            edit_json(lambda v: {"status": "success", "data": {"resultType": "vector"}}),
            "resultType is 'vector', must be 'matrix'",
        ),
        (edit_json(without_name), "result 1: has no __name__"),
        (edit_json(native), "native histogram"),
        (edit_json(torn_sample), "the file is damaged"),
        (edit_json(lambda v: [v, 3]), "answer 2: has no status"),
    ],
)
def test_what_cannot_be_used_is_refused(
    write: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        read_dump(path)
    assert path.name in str(caught.value)


def test_a_file_that_is_cut_off_names_the_line(tmp_path: Path) -> None:
    path = fleets.write_answer(tmp_path / "a.json", small_dump())
    path.write_text(path.read_text()[:-300])
    with pytest.raises(InputError, match=r"a.json: line 1: is not whole JSON"):
        read_dump(path)


def test_replicas_that_look_alike_are_refused(tmp_path: Path) -> None:
    path = fleets.write_openmetrics(tmp_path / "a.om", small_dump())
    text = path.read_text().replace("10.0.0.1", "10.0.0.0")
    at = text.rindex(" 0.25 ")
    path.write_text(text[:at] + " 0.5 " + text[at + 6 :])
    with pytest.raises(InputError, match=r"two values, 0\.25 and 0\.5, .* instance or pod"):
        read_dump(path)


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_dump(tmp_path / "no.om")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder is empty"):
        read_dump(tmp_path / "empty")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_dump(tmp_path / "binary")


def test_what_is_written_is_valid_openmetrics() -> None:
    """Held against the reference parser, which checks order, buckets and counts.

    Scrape by scrape: of a histogram with several times it drops samples (0.26).
    """
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    dump = small_dump()
    lines = "".join(openmetrics_text(dump)).splitlines()
    samples = []
    for time_s in TIMES_S:
        wanted = [line for line in lines if line[0] == "#" or line.endswith(f" {time_s:.3f}")]
        for family in parser.text_string_to_metric_families("\n".join(wanted) + "\n"):
            assert family.type in ("histogram", "gauge", "counter")
            samples += [
                (s.name, tuple(sorted(s.labels.items())), float(s.timestamp), s.value)
                for s in family.samples
            ]
    expected = [
        (name, labels, time, value)
        for name, by_labels in dump.series.items()
        for labels, series in by_labels.items()
        for time, value in zip(series.times_s, series.values, strict=True)
    ]
    assert sorted(samples) == sorted(expected)
