"""Azure inference traces of 2023, 2024 and 2025: CSV ``TIMESTAMP,ContextTokens,GeneratedTokens``.

The years differ in their stamps: 2023 has naive times with seven fractional digits, 2024 has six
digits and a ``+00:00`` offset, and leaves the fraction out on whole seconds, 2025 (multimodal) has
milliseconds and a ``Z``. No year says anything about shared prefixes.

The multimodal trace also has ``NumImages``. Images are not simulated; a request with images gets
the kind ``image``, any other ``text``. Whether ContextTokens counts an image's tokens is not said.

Columns: AzureLLMInferenceDataset2023.md, ...2024.md and AzureLMMInferenceDataset2025.md of
https://github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetsim.traces.schema import Categorical, IntArray
from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import read_batches
from fleetsim.traces.sources.registry import Layout, TraceFormat
from fleetsim.traces.sources.rows import Rows
from fleetsim.traces.sources.table import Table

IMAGES = "NumImages"
_NS_PER_S = 1_000_000_000
_OFFSET = r"(Z|[+-]\d\d(:?\d\d)?)$"
_RIGHT = "a time such as 2023-11-16 18:15:46.6805900 or 2024-05-10 00:00:00+00:00"


def _read(content: Content, layout: Layout) -> Rows:
    assert layout.header is not None
    stamps: list[IntArray] = []
    prompts: list[IntArray] = []
    outputs: list[IntArray] = []
    lines: list[IntArray] = []
    images: list[IntArray] = []
    zoned: bool | None = None
    for table in read_batches(content, layout.header):
        if len(table) == 0:
            continue
        if zoned is None:
            zoned = _has_offset(table.columns["TIMESTAMP"][0].as_py())
        stamps.append(_nanoseconds(table, zoned))
        prompts.append(table.integers("ContextTokens", low=0))
        outputs.append(table.integers("GeneratedTokens", low=0))
        lines.append(table.line_numbers)
        if IMAGES in table.columns:
            images.append(table.integers(IMAGES, low=0))

    def t0_iso(stamp_ns: int) -> str:
        epoch = datetime(1970, 1, 1, tzinfo=UTC if zoned else None)
        return (epoch + timedelta(microseconds=stamp_ns // 1000)).isoformat()

    none = [np.zeros(0, np.int64)]
    return Rows(
        stamps=np.concatenate(stamps or none),
        ticks_per_s=_NS_PER_S,
        prompt_tokens=np.concatenate(prompts or none),
        output_tokens=np.concatenate(outputs or none),
        line_numbers=np.concatenate(lines or none),
        t0_iso=t0_iso,
        **_kinds(images),
    )


def _kinds(batches: list[IntArray]) -> dict[str, Any]:
    if not batches:
        return {}
    has_image = np.concatenate(batches) > 0
    warning = (
        f"{has_image.sum()} of {len(has_image)} requests hold images, which are not simulated: "
        "they take no time and no memory beyond ContextTokens"
    )
    kind = Categorical(has_image.astype(np.int32), ("text", "image"))
    return {"kind": kind, "warnings": (warning,) if has_image.any() else ()}


def _has_offset(text: str) -> bool:
    # the offset's sign must not be taken for a dash of the date
    return bool(pc.match_substring_regex(pa.scalar(text[10:]), _OFFSET).as_py())


def _nanoseconds(table: Table, zoned: bool) -> IntArray:
    """Parse the stamps of one batch; all have a UTC offset, or none has."""
    stamps = pc.utf8_trim_whitespace(table.columns["TIMESTAMP"])
    kind = pa.timestamp("ns", "UTC" if zoned else None)
    try:
        parsed = pc.cast(stamps, kind)
    except pa.ArrowInvalid:
        for row, stamp in enumerate(stamps):
            try:
                pc.cast(stamp, kind)
            except pa.ArrowInvalid:
                text = stamp.as_py()
                also = ""
                if text and _has_offset(text) != zoned:
                    also = f", {'with' if zoned else 'without'} an offset as in the first row"
                raise table.error(row, f"TIMESTAMP is {text!r}; must be {_RIGHT}{also}") from None
        raise
    return np.asarray(pc.cast(parsed, pa.int64()).to_numpy(zero_copy_only=False))


AZURE = TraceFormat(
    name="azure",
    about="Azure LLM inference traces 2023 and 2024, multimodal 2025",
    kinds=("CSV",),
    required=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    optional=(IMAGES,),
    read=_read,
)
