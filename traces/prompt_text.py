"""The prompt of an API request in one canonical form, in which equal histories are equal prefixes.

A model's own chat template is not known here. Messages are written as ``<|role|>``, a line break,
the content and a line break, in their order, after the tools (as JSON with sorted keys) and the
system prompt. A part that is no text, such as an image, becomes its type and a hash of its data.
The form is fixed: a change of it changes all ids, and needs another number in TEXT_FORM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

TEXT_FORM = "role and content, 1"
_TEXT_PARTS = ("text", "input_text", "output_text")
_EXTRAS = ("name", "tool_call_id", "tool_calls")


def canonical_prompt(request: dict[str, Any]) -> str | list[int]:
    """Give the prompt of a request as text, or as token ids where the request has them.

    Args:
        request: body of a chat completion, completion, response or message.

    Raises:
        ValueError: a prompt of an unknown shape; the text says which.
    """
    prompt = request.get("prompt_token_ids")
    if prompt is None:
        prompt = request.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        (prompt,) = prompt
    if isinstance(prompt, list):
        if not all(type(token) is int and 0 <= token < 2**32 for token in prompt):
            raise ValueError("prompt is neither text nor a list of token ids")
        return prompt
    if isinstance(prompt, str):
        return prompt
    messages = request.get("messages", request.get("input"))
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise ValueError("messages is no list of objects")
    return "".join(_pieces(request, messages))


def answer_text(response: list[dict[str, Any]]) -> str | None:
    """Give the text of an answer, or of the chunks of a streamed one; None without any."""
    pieces: list[str] = []
    for body in response:
        for choice in body.get("choices") or ():
            if not isinstance(choice, dict):
                continue
            holder = choice.get("message") or choice.get("delta") or choice
            for name in ("reasoning_content", "content", "text"):
                if isinstance(holder.get(name), str):
                    pieces.append(holder[name])
            if holder.get("tool_calls"):
                pieces.append(_json(holder["tool_calls"]))
    return "".join(pieces) or None


def _pieces(request: dict[str, Any], messages: list[dict[str, Any]]) -> Iterator[str]:
    if request.get("tools"):
        yield f"<|tools|>\n{_json(request['tools'])}\n"
    for name in ("system", "instructions"):
        if request.get(name):
            yield f"<|system|>\n{_content(request[name])}\n"
    for message in messages:
        if "role" not in message:  # a tool's call or result in the responses API
            yield f"<|{message.get('type', 'item')}|>\n{_json(message)}\n"
            continue
        yield f"<|{message['role']}|>\n{_content(message.get('content'))}\n"
        extras = {name: message[name] for name in _EXTRAS if message.get(name)}
        if extras:
            yield f"{_json(extras)}\n"


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("content is neither text nor a list of parts")
    return "".join(_part(part) for part in content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") in _TEXT_PARTS:
        text = part.get("text")
        if isinstance(text, str):
            return text
    kind = part.get("type", "part") if isinstance(part, dict) else "part"
    return f"<|{kind} {blake2b(_json(part).encode(), digest_size=16).hexdigest()}|>"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
