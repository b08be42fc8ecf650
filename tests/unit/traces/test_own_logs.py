"""Logs of one's own fleet: what is kept, what is dropped by name, what is refused."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.traces.own_logs import CHAT, envoy, exchange, lines, nginx, otlp, span, spend

from fleetsim.traces import InputError, Trace, load_trace

ARRIVED = "2026-03-01T12:00:00.250000"


def load(tmp_path: Path, text: str | bytes, format: str | None = None) -> Trace:
    path = tmp_path / "log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    trace = load_trace(path, format=format)
    metadata = trace.metadata
    assert metadata.rows_read == metadata.rows_kept + sum(metadata.rows_dropped.values())
    return trace


def refused(tmp_path: Path, text: str | bytes, format: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text, format)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path / 'log'}: ")


def as_csv(*rows: dict[str, Any], columns: list[str] | None = None) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns or list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow({k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()})
    return out.getvalue()


# one served request in each format

SERVED = {
    "litellm": (spend(), ARRIVED),
    "envoy": (envoy(), ARRIVED + "+00:00"),
    "nginx": (nginx(), ARRIVED + "+00:00"),
    "otel": (otlp(span(CHAT)), ARRIVED + "+00:00"),
    "openai": (exchange("hello"), ARRIVED + "+00:00"),
}


@pytest.mark.parametrize("name", SERVED)
def test_a_served_request_is_kept_with_its_arrival(tmp_path: Path, name: str) -> None:
    row, arrival = SERVED[name]
    trace = load(tmp_path, lines(row))
    assert trace.metadata.source_name == name
    assert trace.metadata.t0_iso == arrival
    expected = (15, 7) if name == "envoy" else (100, 30)
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == expected
    assert trace.model is not None
    assert trace.model.names == ("llama",)
    assert trace.metadata.prefix_scope == "none"
    assert trace.block_ids is None
    assert trace.metadata.rows_read == trace.metadata.rows_kept == 1


@pytest.mark.parametrize("name", SERVED)
def test_bom_crlf_blank_lines_gz_and_order_of_keys_change_nothing(
    tmp_path: Path, name: str
) -> None:
    row, _ = SERVED[name]
    plain = load(tmp_path, lines(row))
    turned = json.dumps(dict(reversed(row.items())))
    damaged = load(tmp_path, gzip.compress(f"\ufeff{turned}\r\n\r\n \n".encode()))
    assert damaged.content_hash() == plain.content_hash()
    listed = load(tmp_path, json.dumps([row], indent=2))
    assert listed.content_hash() == plain.content_hash()


@pytest.mark.parametrize("name", SERVED)
def test_a_cut_off_gz_is_refused(tmp_path: Path, name: str) -> None:
    row, _ = SERVED[name]
    packed = gzip.compress(lines(row).encode())
    assert "is cut short" in refused(tmp_path, packed[:-9])


def test_nothing_but_labels_and_counts_is_copied(tmp_path: Path) -> None:
    trace = load(tmp_path, lines(spend()))
    out = tmp_path / "t.parquet"
    trace.to_parquet(out)
    stored = out.read_bytes() + repr(trace.metadata).encode()
    for private in ("jane", "example.com", "customer", "10.1.2.3", "88dc28d0", "chatcmpl"):
        assert private.encode() not in stored
    trace = load(tmp_path, lines(envoy()))
    trace.to_parquet(out)
    stored = out.read_bytes() + repr(trace.metadata).encode()
    for private in ("192.168", "curl", "83b63da3"):
        assert private.encode() not in stored


# LiteLLM


def test_litellm_csv_is_what_psql_writes(tmp_path: Path) -> None:
    rows = [
        spend(startTime="2026-03-01 12:00:01.5", request_id="b", team_id="", session_id=""),
        spend(startTime="2026-03-01 12:00:00.25", request_id="a"),
    ]
    trace = load(tmp_path, as_csv(*rows))
    assert trace.metadata.source_name == "litellm"
    assert trace.arrival_s.tolist() == [0.0, 1.25]
    assert trace.source_row.tolist() == [1, 0]
    assert trace.tenant is not None
    assert trace.tenant[0] == "team-a"
    assert trace.tenant[1] == rows[0]["api_key"]  # no team: the hash of the key
    assert trace.session is not None
    assert [trace.session[0], trace.session[1]] == ["s1", None]
    turned = list(reversed(rows[0]))
    assert load(tmp_path, as_csv(*rows, columns=turned)).content_hash() == trace.content_hash()


LITELLM_DROPS = {
    "failed": spend(request_id="x", status="failure", completion_tokens=0),
    "cache_hit": spend(request_id="x", cache_hit="True"),
    "other_route": spend(request_id="x", call_type="aembedding", completion_tokens=0),
    "no_usage": spend(request_id="x", completion_tokens=None),
    "zero_output": spend(request_id="x", completion_tokens=0),
    "zero_prompt": spend(request_id="x", prompt_tokens=0),
    "duplicate": spend(),
}


@pytest.mark.parametrize("reason", LITELLM_DROPS)
def test_litellm_drops_by_name(tmp_path: Path, reason: str) -> None:
    rows = [spend(), LITELLM_DROPS[reason], spend(request_id="y")]
    for text in (lines(*rows), as_csv(*rows)):
        trace = load(tmp_path, text)
        assert trace.metadata.rows_dropped == {reason: 1}
        assert trace.metadata.rows_read == 3
        assert trace.source_row.tolist() == [0, 2]


def test_litellm_keys_that_are_not_hashed_are_not_copied(tmp_path: Path) -> None:
    trace = load(tmp_path, lines(spend(team_id=None, api_key="sk-1234567890")))
    assert trace.tenant is None
    assert any("1 rows have an API key" in text for text in trace.metadata.warnings)


def test_litellm_id_with_another_content_is_refused(tmp_path: Path) -> None:
    text = lines(spend(), spend(completion_tokens=31))
    assert refused(tmp_path, text).startswith("row 2: its request id was used in row 1 with")


def test_served_requests_without_counts_are_said_to_be_missing(tmp_path: Path) -> None:
    trace = load(tmp_path, lines(spend(), spend(request_id="x", prompt_tokens=None)))
    assert any("understated by 50.0% of" in text for text in trace.metadata.warnings)


# access logs


def test_access_logs_are_sorted_by_the_start_of_requests(tmp_path: Path) -> None:
    # the second line ends later and began earlier
    rows = [
        nginx(msec="1772366402.250", request_time="0.250", request_id="1"),
        nginx(msec="1772366405.000", request_time="5.000", request_id="2"),
    ]
    trace = load(tmp_path, lines(*rows))
    assert trace.arrival_s.tolist() == [0.0, 2.0]
    assert trace.source_row.tolist() == [1, 0]
    assert trace.metadata.t0_iso == "2026-03-01T12:00:00+00:00"
    assert "arrival is msec (end of the request) less request_time" in trace.metadata.warnings[0]
    assert trace.tenant is not None
    assert trace.tenant.names == ("acme",)


ACCESS_DROPS = {
    "a health check": ("other_route", {"path": "/health", "none": True}),
    "another service": ("other_route", {"path": "/metrics", "none": True, "status": 404}),
    "embeddings": ("other_route", {"path": "/v1/embeddings"}),
    "a failure": ("failed", {"status": 503}),
    "a client that left": ("failed", {"status": 499}),
    "no answer": ("failed", {"status": 0}),
    "no counts": ("no_usage", {"none": True}),
    "a query": ("no_usage", {"path": "/v1/chat/completions/?beta=true", "none": True}),
}


@pytest.mark.parametrize("case", ACCESS_DROPS)
def test_access_logs_drop_by_name(tmp_path: Path, case: str) -> None:
    reason, what = ACCESS_DROPS[case]
    path = what.get("path", "/v1/chat/completions")
    status = what.get("status", 200)
    counts = {"genai_tokens_input": None, "genai_tokens_output": None} if "none" in what else {}
    row = envoy(**{"x-envoy-origin-path": path, "response_code": status, "x-request-id": "b"})
    trace = load(tmp_path, lines(envoy(), {**row, **counts}))
    assert trace.metadata.rows_dropped == {reason: 1}
    counts = {"prompt_tokens": "", "completion_tokens": "-"} if "none" in what else {}
    row = nginx(uri=path, status=f"{status:03}", request_id="b", **counts)
    assert load(tmp_path, lines(nginx(), row)).metadata.rows_dropped == {reason: 1}


def test_a_request_with_counts_on_a_path_of_ones_own_is_kept(tmp_path: Path) -> None:
    trace = load(tmp_path, lines(envoy(**{"x-envoy-origin-path": "/ask/me"})))
    assert len(trace) == 1


def test_envoy_names_of_the_gateways_own_log(tmp_path: Path) -> None:
    row = {
        "start_time": "2026-03-01T12:00:00.250Z",
        "request.path": "/v1/chat/completions",
        "response_code": 200,
        "gen_ai.request.model": "llama",
        "gen_ai.usage.input_tokens": "100",
        "gen_ai.usage.output_tokens": "30",
        "session.id": "s",
    }
    trace = load(tmp_path, lines(row))
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (100, 30)
    assert trace.session is not None
    assert trace.session.names == ("s",)


def test_a_client_id_used_twice_is_kept_and_said(tmp_path: Path) -> None:
    trace = load(tmp_path, lines(envoy(), envoy(genai_tokens_input=16), envoy()))
    assert trace.metadata.rows_dropped == {"duplicate": 1}
    assert any("1 rows have a request id" in text for text in trace.metadata.warnings)


def test_access_log_without_token_counts_says_what_is_missing(tmp_path: Path) -> None:
    row = nginx()
    del row["completion_tokens"]
    message = refused(tmp_path, lines(row))
    assert message.startswith("is nginx without token counts; needs one of gen_ai.usage.output_")
    assert message.endswith("(docs/traces-own.md)")


# OpenTelemetry


def spans(*changes: dict[str, Any]) -> str:
    return lines(otlp(*(span(CHAT, **{"spanId": str(n), **c}) for n, c in enumerate(changes))))


def test_otel_labels_and_limit(tmp_path: Path) -> None:
    trace = load(tmp_path, lines(otlp(span(CHAT))))
    assert trace.session is not None
    assert trace.session.names == ("c1",)
    assert trace.max_tokens is not None
    assert trace.max_tokens[0] == 256


def test_otel_older_names_without_an_operation(tmp_path: Path) -> None:
    old = {"gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 30}
    trace = load(tmp_path, lines(otlp(span(old, startTimeUnixNano=1772366400250000000))))
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (100, 30)
    assert trace.metadata.t0_iso == ARRIVED + "+00:00"


def test_otel_one_request_with_three_spans_counts_once(tmp_path: Path) -> None:
    # the engine's span is in the file before the gateway's, and an HTTP span lies between
    engine = span(CHAT, spanId="3", parentSpanId="2", startTimeUnixNano="1772366400900000000")
    http = span({"http.request.method": "POST"}, spanId="2", parentSpanId="1")
    gateway = span(CHAT, spanId="1", parentSpanId="0")
    agent = span({**CHAT, "gen_ai.operation.name": "invoke_agent"}, spanId="0")
    trace = load(tmp_path, lines(otlp(engine), otlp(http, gateway, agent)))
    assert trace.metadata.rows_dropped == {"nested": 1, "not_generation": 2}
    assert trace.metadata.t0_iso == ARRIVED + "+00:00"  # when the gateway's began


def test_otel_attempts_inside_a_failed_span_count(tmp_path: Path) -> None:
    outer = {"spanId": "0", "status": {"code": 2}}
    trace = load(tmp_path, spans(outer, {"parentSpanId": "0"}))
    assert trace.metadata.rows_dropped == {"failed": 1}


def test_otel_drops_by_name(tmp_path: Path) -> None:
    text = spans({}, {"status": {"code": "STATUS_CODE_ERROR"}}, {"spanId": "0"})
    assert load(tmp_path, text).metadata.rows_dropped == {"duplicate": 1, "failed": 1}
    without = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3}
    text = lines(otlp(span(CHAT), span(without, spanId="1")))
    assert load(tmp_path, text).metadata.rows_dropped == {"no_usage": 1}


def test_otel_line_longer_than_the_head_of_the_file(tmp_path: Path) -> None:
    many = otlp(*(span(CHAT, spanId=str(n)) for n in range(1500)))
    text = lines(many)
    assert len(text) > 1 << 18
    assert len(load(tmp_path, text)) == 1500


# OpenAI-style


def test_openai_streamed_answer_has_its_counts_in_the_last_chunk(tmp_path: Path) -> None:
    chunks = [{"created": 1, "usage": None}, {"usage": {"input_tokens": 9, "output_tokens": 4}}]
    trace = load(tmp_path, lines(exchange("a", response=chunks)))
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (9, 4)


def test_openai_created_is_the_arrival_where_nothing_else_is(tmp_path: Path) -> None:
    row = exchange("a")
    del row["timestamp"]
    trace = load(tmp_path, lines(row))
    assert trace.metadata.t0_iso == "2026-03-01T12:00:00+00:00"
    assert trace.metadata.warnings[0].startswith("arrival is response.created: epoch seconds")


OPENAI_DROPS = {
    "failed": exchange("b", response={"error": {"message": "overloaded"}}),
    "failed by status": exchange("b", response={"status_code": 429, "body": {"a": 1}}),
    "failed without an answer": exchange("b", response=None),
    "no_usage": exchange("b", response={"choices": []}),
    "not_generation": exchange("b", response={"object": "list", "usage": {"prompt_tokens": 3}}),
    "several_prompts": exchange(request={"prompt": ["a", "b"]}),
}


@pytest.mark.parametrize("case", OPENAI_DROPS)
def test_openai_drops_by_name(tmp_path: Path, case: str) -> None:
    trace = load(tmp_path, lines(exchange("a"), OPENAI_DROPS[case]))
    assert trace.metadata.rows_dropped == {case.split()[0]: 1}


def test_openai_first_row_longer_than_the_head_of_the_file(tmp_path: Path) -> None:
    trace = load(tmp_path, lines(exchange("word " * 100_000), exchange("b")))
    assert len(trace) == 2


# what is refused

REFUSED = {
    "huge count": (lines(spend(prompt_tokens=2**31)), "row 1: prompt_tokens is 2147483648; must"),
    "endless count": (lines(spend(prompt_tokens=10**400)), "row 1: prompt_tokens is 1000000000"),
    "negative": (lines(spend(), spend(completion_tokens=-1)), "row 2: completion_tokens is -1"),
    "fraction": (lines(envoy(genai_tokens_input=1.5)), "row 1: genai_tokens_input is 1.5; must"),
    "true": (lines(spend(prompt_tokens=True)), "row 1: prompt_tokens is True; must be a whole"),
    "no time": (lines(spend(startTime="")), "row 1: startTime is empty; must be a time such as"),
    "lost time": (
        lines(spend(), {"request_id": "q", "prompt_tokens": 1, "completion_tokens": 1}),
        "row 2: startTime is empty",
    ),
    "no duration": (
        lines(nginx(request_time="")),
        "row 1: request_time is empty; must be a number",
    ),
    "label": (lines(spend(session_id=["a"])), "row 1: session is no text; must be a name"),
    "spans": (lines({"resourceSpans": [3]}), "row 1: resourceSpans must be a list of objects"),
    "request": (lines(exchange("a", request="a")), "row 1: request is no object; must be the body"),
    "prompt": (lines(exchange("a", request={})), "row 1: request has none of messages, prompt"),
    "nothing left": (
        lines(spend(status="failure")),
        "no row left of 1: dropped {'failed': 1}; give served requests with token counts",
    ),
    "two formats": (lines({**envoy(), **nginx()}), "say which with format="),
    "item": ('[{"resourceSpans": []}, 3]', "row 2: is a JSON int; must be one object"),
    "list cut": ('[{"resourceSpans": []}, ', "row 2: is not JSON (the list is cut short); must"),
    "list damaged": ('[{"resourceSpans": []}, {x}]', "row 2: is not JSON (Expecting property"),
    "list and more": ('[{"resourceSpans": []}]\n{}', "row 1: is followed by more than the list"),
    "no comma": ('[{"resourceSpans": []} {}]', "row 1: is not followed by a comma or ']'"),
    "CSV of Envoy": ("start_time,response_code\n2026,1\n", "unknown layout: CSV with columns"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_logs_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    text, expected = REFUSED[case]
    assert expected in refused(tmp_path, text)


def test_a_long_list_is_read_piece_by_piece(tmp_path: Path) -> None:
    rows = [spend(request_id=f"ü{n}", prompt_tokens=n + 1) for n in range(4000)]
    text = json.dumps(rows, ensure_ascii=False)
    assert len(text) > 2 << 20
    assert load(tmp_path, text).prompt_tokens.tolist() == list(range(1, 4001))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(SERVED)), st.booleans(), st.data())
def test_any_small_damage_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, listed: bool, data: st.DataObject
) -> None:
    row, _ = SERVED[name]
    content = bytearray((json.dumps([row, row]) if listed else lines(row, row)).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    folder = tmp_path_factory.mktemp("damage")
    message = f"{folder / 'log'}: read"
    try:
        load(folder, bytes(content))
    except InputError as error:
        message = str(error)
    assert message.startswith(f"{folder / 'log'}: ")
    assert "\n" not in message
