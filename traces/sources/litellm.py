"""Spend logs of the LiteLLM proxy: its table ``LiteLLM_SpendLogs`` as CSV, JSON Lines or a list.

The columns are those of LiteLLM's ``schema.prisma``. A row is one call by one client, kept when it
was served by a model: failed attempts (LiteLLM writes a row for each), answers from LiteLLM's own
response cache, and calls that generate no text (embeddings, images, MCP tools) are dropped by
name. Arrival is ``startTime``, which LiteLLM writes in UTC without a zone.

The tenant is the team, or the hash of the key where a call has no team; ``user``, ``end_user``,
addresses and prompts are never looked at.
"""

from __future__ import annotations

from typing import Any

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.log_rows import (
    FAILED,
    NO_USAGE,
    OTHER_ROUTE,
    LogRows,
    first_of,
    read_records,
)
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows

CACHE_HIT = "cache_hit"
# parts of call types that end without generated text; "a" before a type is its async form
_OTHER_CALLS = (
    "embedding",
    "rerank",
    "transcription",
    "speech",
    "image",
    "video",
    "moderation",
    "mcp",
    "ocr",
    "search",
    "file",
    "batch",
)


def _read(content: Content, layout: Layout) -> Rows:
    rows = LogRows(content, "startTime", unique_ids=True)
    bare_keys = 0
    for line, row in read_records(content, layout):
        reason = _why_not(row)
        prompt = rows.whole(line, "prompt_tokens", row.get("prompt_tokens"))
        output = rows.whole(line, "completion_tokens", row.get("completion_tokens"))
        if reason is None and (prompt is None or output is None):
            reason = NO_USAGE
        if reason is not None:
            rows.drop(reason)
            continue
        assert prompt is not None
        assert output is not None
        tenant = first_of(row, ("team_id", "api_key"))
        if isinstance(tenant, str) and tenant.startswith("sk-"):
            bare_keys += 1  # a key itself, not its hash
            tenant = None
        rows.add(
            line,
            row.get("startTime"),
            prompt,
            output,
            request_id=row.get("request_id"),
            tenant=tenant,
            model=first_of(row, ("model_group", "model")),
            session=row.get("session_id"),
        )
    if bare_keys:
        rows.warn(f"{bare_keys} rows have an API key that is not hashed; it is not copied")
    return rows.rows("startTime")


def _why_not(row: dict[str, Any]) -> str | None:
    call = str(row.get("call_type") or "").lower()
    if any(part in call for part in _OTHER_CALLS):
        return OTHER_ROUTE
    if str(row.get("status") or "").lower() == "failure":
        return FAILED
    if str(row.get("cache_hit") or "").lower() == "true":
        return CACHE_HIT
    return None


LITELLM = TraceFormat(
    name="litellm",
    about="spend logs of the LiteLLM proxy",
    kinds=("CSV", "JSONL"),
    required=("request_id", "startTime", "prompt_tokens", "completion_tokens"),
    optional=(),
    read=_read,
    ignores_others=True,
)
