"""Published traces that can be fetched: where, how long, with which sha256, under which licence.

Only files whose content was seen and hashed are here, each at a fixed commit of its repository.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One file at one place.

    Attributes:
        name: of the file.
        url: where it lies, at a fixed commit.
        size_bytes: its length.
        sha256: of its content, hex.
    """

    name: str
    url: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PublishedTrace:
    """One data set.

    Attributes:
        name: as in ``fetch_trace(name)``.
        about: one line for people.
        licence: SPDX identifier.
        cite: what its authors want cited, or who holds the rights.
        files: the trace first, then what belongs to it.
    """

    name: str
    about: str
    licence: str
    cite: str
    files: tuple[PublishedFile, ...]


def _raw(repository: str, commit: str, path: str, size_bytes: int, sha256: str) -> PublishedFile:
    url = f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"
    return PublishedFile(path.rpartition("/")[2], url, size_bytes, sha256)


def _azure(kind: str, size_bytes: int, sha256: str) -> tuple[PublishedFile, ...]:
    path = f"data/AzureLLMInferenceTrace_{kind}.csv"
    return (_raw("Azure/AzurePublicDataset", "b469a113cedc", path, size_bytes, sha256),)


def _ragpulse(name: str, size_bytes: int, sha256: str) -> PublishedFile:
    path = f"data/{name}.jsonl"
    return _raw("flashserve/RAGPulse", "3672232d45d7", path, size_bytes, sha256)


_SPLITWISE = "Patel et al., Splitwise, ISCA 2024"
_LLMSERVINGSIM = "(c) 2024 CASYS Lab, KAIST"

PUBLISHED: dict[str, PublishedTrace] = {
    one.name: one
    for one in (
        PublishedTrace(
            "azure-2023-code",
            "Azure LLM inference 2023, code completion: 8,819 requests, 57 min",
            "CC-BY-4.0",
            _SPLITWISE,
            _azure(
                "code", 320117, "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6"
            ),
        ),
        PublishedTrace(
            "azure-2023-conv",
            "Azure LLM inference 2023, conversation: 19,366 requests, 58 min",
            "CC-BY-4.0",
            _SPLITWISE,
            _azure(
                "conv", 719188, "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8"
            ),
        ),
        PublishedTrace(
            "mooncake-conversation",
            "Mooncake conversation, with prefixes: 12,031 requests, 59 min",
            "Apache-2.0",
            "Qin et al., Mooncake, FAST 2025",
            (
                _raw(
                    "kvcache-ai/Mooncake",
                    "3b5a59413395",
                    "FAST25-release/traces/conversation_trace.jsonl",
                    3029533,
                    "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
                ),
            ),
        ),
        PublishedTrace(
            "llmservingsim-sharegpt",
            "LLMServingSim ShareGPT for Llama 3.1 8B: 300 requests of outputs over 512, 29 s",
            "MIT",
            f"{_LLMSERVINGSIM}; text of shibing624/sharegpt_gpt4",
            (
                _raw(
                    "casys-kaist/LLMServingSim",
                    "5daddb21a545",
                    "workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl",
                    2574379,
                    "05e48b32da530d4a3dd77f3d47c6fe694ac8308d611aa088e38bb10fba2b3b3a",
                ),
            ),
        ),
        PublishedTrace(
            "llmservingsim-example",
            "LLMServingSim example: 10 requests",
            "MIT",
            _LLMSERVINGSIM,
            (
                _raw(
                    "casys-kaist/LLMServingSim",
                    "5daddb21a545",
                    "workloads/example_trace.jsonl",
                    3573,
                    "8e55b35d62c0530fd6fefcf67d422b1dcb8b80e1c71243a21900f8ac829b5429",
                ),
            ),
        ),
        PublishedTrace(
            "vidur-arxiv",
            "Vidur arXiv summarisation: 28,257 lengths without arrival times",
            "MIT",
            "Agrawal et al., Vidur, MLSys 2024",
            (
                _raw(
                    "microsoft/vidur",
                    "7d47513363ec",
                    "data/processed_traces/"
                    "arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
                    884932,
                    "9d3580538d915ca75e4aaaa54590b42dbb17abc6d74c8913310cf07c232adcdc",
                ),
            ),
        ),
        PublishedTrace(
            "ragpulse",
            "RAGPulse, retrieval-augmented answers with prefixes: 7,106 requests, 7 days",
            "MIT",
            "RAGPulse, github.com/flashserve/RAGPulse",
            (
                _ragpulse(
                    "0_trace",
                    1923473,
                    "cd371571bef3320907147f8901729e37f412aafb067ec8eb153e2828e1801e65",
                ),
                _ragpulse(
                    "1_sys_prompt",
                    315609,
                    "e7bf9bc66493629fa279d67ffb9d6a44e4ec3a7ac60549f5c679319c54564f6d",
                ),
                _ragpulse(
                    "2_passages",
                    347002,
                    "8575941cab2eb1cae25e589b7fab3ccb6affc3809e4156b1dc6db40d9e65b891",
                ),
                _ragpulse(
                    "3_history",
                    210541,
                    "fdd9b1ca962c2b4d0f48785497007e20aa961442eb93cb1afbe3f23c383ae467",
                ),
                _ragpulse(
                    "4_user_input",
                    278133,
                    "5adeff33a44850f5a1c0892aaaf7000114d7ac24821d4238175abb92b77dd12d",
                ),
                _ragpulse(
                    "5_web_search",
                    23972,
                    "5e4cba4e2e449eb1a26c1c94aa57a59204f29c8ed0395da03cf0f43b7d75891c",
                ),
            ),
        ),
    )
}
"""By name."""
