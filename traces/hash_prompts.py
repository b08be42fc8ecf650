"""From a log with prompts to a trace without them: block chains under a salt.

What remains of a prompt is which other prompts it begins like. Neither the text nor the token ids
are stored, and without the salt nobody can check a guess against the ids.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from fleetsim.traces.assemble import assemble
from fleetsim.traces.load import choose_format, load_trace, read_layout
from fleetsim.traces.prompt_blocks import BlockCutter
from fleetsim.traces.prompt_text import TEXT_FORM, answer_text, canonical_prompt
from fleetsim.traces.salted_hash import SaltedHash
from fleetsim.traces.schema import Trace
from fleetsim.traces.sources.content import open_content
from fleetsim.traces.sources.jsonl_rows import read_first
from fleetsim.traces.sources.log_rows import NO_USAGE
from fleetsim.traces.sources.openai_log import OPENAI, Exchange, OpenAiLog

_LABELS = ("session", "tenant", "model", "adapter")
_CUT_BY_LITELLM = "litellm_truncated"


def holds_prompts(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a log with prompts, or a trace without.

    Raises:
        InputError: neither.
    """
    with open_content(path) as content:
        return choose_format(content, read_layout(content), None) is OPENAI


def hash_log(
    path: str | os.PathLike[str],
    salt: SaltedHash,
    cutter: BlockCutter,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Read a log of OpenAI-style requests, with the block chains of their prompts.

    A prompt has the length that the answer's ``usage`` says, as that is what the engine worked on;
    the canonical text is a little shorter or longer than what the model's chat template made. The
    chain is cut or filled up to that length, and the metadata says by how much. Without ``usage``,
    lengths are those of the canonical text and of the answer's text.

    Args:
        path: of the log.
        salt: to hash with.
        cutter: cuts prompts into blocks.
        progress: told the number of requests, now and then.

    Raises:
        InputError: as :func:`load_trace`; text without a way to count its tokens.
    """
    with open_content(path) as content:
        layout = read_layout(content)
        choose_format(content, layout, OPENAI.name)
        log = OpenAiLog(content, read_first(content))
        tally = _Tally()
        for one in log.exchanges():
            _add(log, one, salt, cutter, tally)
            if progress is not None and tally.requests % 500 == 0:
                progress(tally.requests)
        for text in tally.warnings(cutter):
            log.rows.warn(text)
        trace = assemble(log.finish(cutter.block_tokens), content, OPENAI.name)
    step = {
        "name": "hash_prompts",
        "block_tokens": cutter.block_tokens,
        "chars_per_token": cutter.chars_per_token,
        "text_form": TEXT_FORM if tally.texts else None,
        "tokens_cut": tally.cut,
        "tokens_filled": tally.filled,
    }
    return _anonymous(trace, step)


def hash_trace(path: str | os.PathLike[str], salt: SaltedHash) -> Trace:
    """Read a trace that has no prompts, and hash the block ids that it has, if any.

    Raises:
        InputError: as :func:`load_trace`.
    """
    trace = load_trace(path)
    if trace.block_ids is None:
        return _anonymous(trace)
    trace = dataclasses.replace(trace, block_ids=salt.ids(trace.block_ids))
    return _anonymous(trace, {"name": "hash_ids"})


def hash_labels(trace: Trace, salt: SaltedHash) -> Trace:
    """Hash the names of sessions, tenants, models and adapters."""
    changes: dict[str, Any] = {}
    for name in _LABELS:
        labels = getattr(trace, name)
        if labels is not None:
            changes[name] = salt.labels(name, labels)
    step = {"name": "hash_labels", "columns": sorted(changes)}
    metadata = dataclasses.replace(trace.metadata, transforms=(*trace.metadata.transforms, step))
    return dataclasses.replace(trace, **changes, metadata=metadata)


def with_warning(trace: Trace, text: str) -> Trace:
    """Add a line for the reader of results."""
    metadata = dataclasses.replace(trace.metadata, warnings=(*trace.metadata.warnings, text))
    return dataclasses.replace(trace, metadata=metadata)


def _anonymous(trace: Trace, *steps: dict[str, Any]) -> Trace:
    # the name and the unsalted hash of a log would let a guess at its content be checked
    metadata = dataclasses.replace(
        trace.metadata,
        source_path=None,
        sha256=None,
        transforms=(*trace.metadata.transforms, *steps),
    )
    return dataclasses.replace(trace, metadata=metadata)


@dataclasses.dataclass(slots=True)
class _Tally:
    """What hashing met, for the metadata."""

    requests: int = 0
    texts: int = 0
    characters: int = 0  # of texts whose usage is known
    said: int = 0  # tokens of those, by usage
    counted: int = 0  # and by the canonical text
    cut: int = 0
    filled: int = 0
    guessed: int = 0  # requests without usage

    def warnings(self, cutter: BlockCutter) -> list[str]:
        lines = []
        if cutter.chars_per_token is not None and self.texts:
            lines.append(
                f"prompts are cut by characters, {cutter.chars_per_token:g} to a token: an "
                "approximation of where blocks end, and of lengths without usage"
            )
        if self.said and self.counted != self.said:
            line = (
                f"prompts have {self.said} tokens by the log's usage and {self.counted} by the "
                f"hashed text ({self.counted / self.said - 1:+.1%}); lengths are the log's, and "
                "shared prefixes are off by about that share"
            )
            if cutter.chars_per_token is not None:
                line += f"; {self.characters / self.said:.3g} characters per token would agree"
            lines.append(line)
        if self.guessed:
            lines.append(
                f"{self.guessed} requests have no usage: their lengths are counted on the text"
            )
        return lines


def _add(
    log: OpenAiLog, one: Exchange, salt: SaltedHash, cutter: BlockCutter, tally: _Tally
) -> None:
    rows = log.rows
    try:
        prompt = canonical_prompt(one.request)
    except ValueError as error:
        raise rows.error(one.line, f"{error}; must be the body of the request") from None
    is_text = isinstance(prompt, str)
    if isinstance(prompt, str) and _CUT_BY_LITELLM in prompt:
        raise rows.error(
            one.line,
            "its prompt was cut by LiteLLM; set MAX_STRING_LENGTH_PROMPT_IN_DB higher and record "
            "again",
        )
    blocks = cutter.cut(prompt)
    if blocks is None:
        raise rows.error(
            one.line,
            "its prompt is text; give --tokenizer NAME, or --chars-per-token 4 to approximate",
        )
    counted, content = blocks
    said, output = one.prompt_tokens, one.output_tokens
    if said is not None and not is_text and said != counted:
        raise rows.error(one.line, f"its prompt has {counted} token ids, but its usage says {said}")
    guessed = said is None or output is None
    if output is None:
        answer = answer_text(one.response)
        output = None if answer is None else cutter.count(answer)
    if output is None:
        rows.drop(NO_USAGE)
        return
    tokens = counted if said is None else said
    ids = salt.chain(content, -(-tokens // cutter.block_tokens))
    rows.add(one.line, one.time, tokens, output, block_ids=ids, **one.labels)
    tally.requests += 1
    tally.guessed += guessed
    tally.texts += is_text
    if is_text and said is not None:
        tally.characters += len(prompt)
        tally.said += said
        tally.counted += counted
        tally.cut += max(0, counted - said)
        tally.filled += max(0, said - counted)
