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
_LLMSERVINGSIM = "https://github.com/casys-kaist/LLMServingSim"

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
    "cd371571bef3320907147f8901729e37f412aafb067ec8eb153e2828e1801e65": KnownFile(
        "ragpulse: one week",
        "MIT (cite arXiv 2511.12979)",
        "https://github.com/flashserve/RAGPulse",
    ),
    "26fcc3c5dc9627c6ac1a20a4b543ebcee5e23c3446f9a71a4f1bd87ee029ff06": KnownFile(
        "weka: 40 sessions of kv-cache-tester",
        "Apache-2.0",
        "https://github.com/callanjfox/kv-cache-tester",
    ),
    "05e48b32da530d4a3dd77f3d47c6fe694ac8308d611aa088e38bb10fba2b3b3a": KnownFile(
        "llmservingsim: ShareGPT, Llama-3.1-8B, outputs of 512 tokens and more",
        "MIT (tokens derived from shibing624/sharegpt_gpt4)",
        _LLMSERVINGSIM,
    ),
    "8e55b35d62c0530fd6fefcf67d422b1dcb8b80e1c71243a21900f8ac829b5429": KnownFile(
        "llmservingsim: example", "MIT", _LLMSERVINGSIM
    ),
    "9d3580538d915ca75e4aaaa54590b42dbb17abc6d74c8913310cf07c232adcdc": KnownFile(
        "vidur: arXiv summarization, lengths alone", "MIT", "https://github.com/microsoft/vidur"
    ),
}
"""By the sha256 of the decompressed content."""
