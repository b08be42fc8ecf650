"""A prompt as blocks of a fixed number of tokens: by token ids, a tokenizer, or characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleetsim.traces.errors import InputError

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class BlockCutter:
    """How prompts are cut.

    Attributes:
        block_tokens: tokens per block; the last block has what is left.
        encode: text to token ids; None without a tokenizer.
        chars_per_token: the approximation where there is no tokenizer; None without one.
    """

    block_tokens: int
    encode: Encode | None = None
    chars_per_token: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.block_tokens <= 65536:
            raise InputError(f"block_tokens {self.block_tokens}: must lie between 1 and 65536")
        if self.encode is not None and self.chars_per_token is not None:
            raise InputError("a tokenizer and chars_per_token: give one of them")
        rate = self.chars_per_token
        if rate is not None and not (math.isfinite(rate) and 0.1 <= rate <= 100):
            raise InputError(f"chars_per_token {rate}: must lie between 0.1 and 100, such as 4")

    def cut(self, prompt: str | list[int]) -> tuple[int, list[bytes]] | None:
        """Count the tokens and give the blocks' content; None for text that nothing can count."""
        if isinstance(prompt, str):
            if self.chars_per_token is not None:
                # blocks end after the same characters in every prompt, or prefixes would part
                per_block = self.block_tokens * self.chars_per_token
                tokens = math.ceil(len(prompt) / self.chars_per_token)
                cuts = [round(n * per_block) for n in range(-(-tokens // self.block_tokens))]
                pieces = itertools.pairwise([*cuts, len(prompt)])
                return tokens, [_utf8(prompt[start:end]) for start, end in pieces]
            if self.encode is None:
                return None
            prompt = self.encode(prompt)
        ids = np.array(prompt, dtype="<u4")
        starts = range(0, len(ids), self.block_tokens)
        return len(ids), [ids[start : start + self.block_tokens].tobytes() for start in starts]

    def count(self, text: str) -> int | None:
        """Count the tokens of a text; None where nothing can."""
        if self.chars_per_token is not None:
            return math.ceil(len(text) / self.chars_per_token)
        return None if self.encode is None else len(self.encode(text))


def load_tokenizer(name: str) -> Encode:
    """Load a tokenizer: a ``tokenizer.json``, a folder with one, or a name on the Hugging Face hub.

    Raises:
        InputError: the package is missing, or there is no such tokenizer.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "--tokenizer needs the package tokenizers: pip install 'fleetsim[tokenizer]', or give "
            "--chars-per-token"
        ) from None
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = (
            Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer.from_pretrained(name)
        )
    except Exception as error:  # the package raises bare Exception
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"--tokenizer {name}: cannot be loaded ({reason}); must be a tokenizer.json, a folder "
            "with one, or a name on the Hugging Face hub"
        ) from None

    def encode(text: str) -> list[int]:
        # a special token before every prompt says nothing about its content
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # JSON may hold half a surrogate pair
