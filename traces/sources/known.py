"""Published trace files that are recognised by their hash, and so get their licence and name.

A file that merely has the same columns gets neither: fleetsim does not guess a licence.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownFile:
    """One published file.

    Attributes:
        name: of the data set.
        licence: SPDX identifier, and what to cite.
        url: where it was published.
    """

    name: str
    licence: str
    url: str


_AZURE = "https://github.com/Azure/AzurePublicDataset"
_AZURE_LICENCE = "CC-BY-4.0 (cite Splitwise, ISCA 2024)"

KNOWN_FILES = {
    "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6": KnownFile(
        "azure: LLM inference trace 2023, code", _AZURE_LICENCE, _AZURE
    ),
    "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8": KnownFile(
        "azure: LLM inference trace 2023, conversation", _AZURE_LICENCE, _AZURE
    ),
    "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df": KnownFile(
        "mooncake: conversation trace, FAST'25",
        "Apache-2.0 (cite Mooncake, FAST 2025)",
        "https://github.com/kvcache-ai/Mooncake",
    ),
}
"""By the sha256 of the decompressed content."""
