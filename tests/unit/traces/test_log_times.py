"""Times of logs: every form, exactly, and never two in one file."""

from pathlib import Path
from typing import Any

import pytest
from unit.traces.own_logs import lines, spend

from fleetsim.traces import InputError, Trace, load_trace

NS = 1772366400250000000  # 2026-03-01T12:00:00.25Z


def load(tmp_path: Path, *times: Any) -> Trace:
    path = tmp_path / "log"
    path.write_text(lines(*(spend(request_id=str(n), startTime=t) for n, t in enumerate(times))))
    return load_trace(path)


FORMS = {
    "naive": ("2026-03-01 12:00:00.25", "2026-03-01T12:00:01.250001"),
    "zoned": ("2026-03-01T12:00:00.250Z", "2026-03-01T13:00:01.250001+01:00"),
    "zoned, short": ("2026-03-01 12:00:00.25+00", "2026-03-01 07:00:01.250001-0500"),
    "seconds": (1772366400.25, "1772366401.250001"),
    "microseconds": (NS // 1000, str(NS // 1000 + 1_000_001)),
    "nanoseconds": (NS, str(NS + 1_000_001_000)),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read_exactly(tmp_path: Path, form: str) -> None:
    trace = load(tmp_path, *FORMS[form])
    assert trace.arrival_s.tolist() == [0.0, 1.000001]
    zone = "" if form == "naive" else "+00:00"
    assert trace.metadata.t0_iso == f"2026-03-01T12:00:00.250000{zone}"


def test_milliseconds(tmp_path: Path) -> None:
    trace = load(tmp_path, NS // 10**6, NS // 10**6 + 1)
    assert trace.arrival_s.tolist() == [0.0, 0.001]
    assert trace.metadata.warnings[0] == "arrival is startTime: epoch milliseconds"


def test_times_without_a_zone_are_said_to_be_utc(tmp_path: Path) -> None:
    trace = load(tmp_path, "2026-03-01 12:00:00")
    told = "arrival is startTime: ISO 8601 without a zone, taken as UTC"
    assert trace.metadata.warnings[0] == told


def test_whole_seconds_are_found_and_said(tmp_path: Path) -> None:
    trace = load(tmp_path, *(1772366400 + n // 2 for n in range(40)))
    assert trace.metadata.time_resolution_s == 1.0
    assert any("share their arrival time" in text for text in trace.metadata.warnings)


MIXED = {
    "zone": ("2026-03-01 12:00:00Z", "2026-03-01 12:00:00", "ISO 8601 with a zone as in row 1"),
    "unit": (NS // 10**6, NS // 10**9, "must be epoch milliseconds as in row 1"),
    "number": (NS, "2026-03-01 12:00:00", "must be epoch nanoseconds as in row 1"),
}


@pytest.mark.parametrize("case", MIXED)
def test_mixed_forms_are_refused_by_row(tmp_path: Path, case: str) -> None:
    first, second, expected = MIXED[case]
    with pytest.raises(InputError, match=r"row 3: startTime is ") as caught:
        load(tmp_path, first, first, second)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "time",
    ["01/Mar/2026:12:00:00 +0000", "2026-13-01 12:00:00", "12", 0, -5, 2**64, 1e300, "", None, True,
     float("nan"), [1], {"a": 1}, "2026-03-01", 9.3e9, "9" * 21],
)  # fmt: skip
def test_no_time_is_refused_in_one_line(tmp_path: Path, time: Any) -> None:
    with pytest.raises(InputError, match="row 1: startTime is ") as caught:
        load(tmp_path, time)
    assert "must be" in str(caught.value)
    assert "\n" not in str(caught.value)
