"""Small logs in the formats that gateways write, each row changed at will."""

import json
from typing import Any


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def spend(**changes: Any) -> dict[str, Any]:
    """A row of LiteLLM_SpendLogs as its API gives it."""
    return {
        "request_id": "chatcmpl-1",
        "call_type": "acompletion",
        "api_key": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
        "spend": 0.01,
        "total_tokens": 130,
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "startTime": "2026-03-01T12:00:00.250000",
        "endTime": "2026-03-01T12:00:02.250000",
        "completionStartTime": "2026-03-01T12:00:00.500000",
        "model": "hosted_vllm/llama",
        "model_group": "llama",
        "user": "jane.doe@example.com",
        "metadata": {"user_api_key_alias": "janes key"},
        "cache_hit": "False",
        "team_id": "team-a",
        "end_user": "customer 17",
        "requester_ip_address": "10.1.2.3",
        "messages": {},
        "session_id": "s1",
        "status": "success",
        **changes,
    }


def envoy(**changes: Any) -> dict[str, Any]:
    """A line of Envoy AI Gateway's access log, with the names of its documentation."""
    return {
        "start_time": "2026-03-01T12:00:00.250Z",
        "method": "POST",
        "x-envoy-origin-path": "/v1/chat/completions",
        "response_code": 200,
        "response_flags": "-",
        "duration": 1526,
        "x-forwarded-for": "192.168.1.38",
        "user-agent": "curl/8.7.1",
        "x-request-id": "83b63da3",
        "genai_model_name": "llama",
        "genai_tokens_input": 15,
        "genai_tokens_output": 7,
        **changes,
    }


def nginx(**changes: Any) -> dict[str, Any]:
    """A line of the log_format in docs/traces-own.md; nginx writes all of it as text."""
    return {
        "msec": "1772366402.250",
        "request_time": "2.000",
        "status": "200",
        "uri": "/v1/completions",
        "request_id": "9f1c",
        "prompt_tokens": "100",
        "completion_tokens": "30",
        "model": "llama",
        "tenant": "acme",
        **changes,
    }


def span(attributes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """One span in OTLP JSON, where whole numbers are text."""
    values = [
        {"key": key, "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}}
        for key, v in attributes.items()
    ]
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "chat llama",
        "kind": 3,
        "startTimeUnixNano": "1772366400250000000",
        "endTimeUnixNano": "1772366402250000000",
        "attributes": values,
        "status": {},
        **changes,
    }


CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "llama",
    "gen_ai.request.max_tokens": 256,
    "gen_ai.conversation.id": "c1",
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 30,
}


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    scope = {"scope": {"name": "instrumentation"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]}


def exchange(
    *contents: str, prompt_tokens: int = 100, output_tokens: int = 30, **changes: Any
) -> dict[str, Any]:
    """A chat completion with its answer; contents are turns of user and assistant."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(contents)]
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens}
    return {
        "timestamp": 1772366400.25,
        "request": {"model": "llama", "messages": messages, "max_tokens": 256},
        "response": {"id": "chatcmpl-1", "created": 1772366400, "usage": usage},
        **changes,
    }
