"""Reading and writing golden files: workloads with what the real engine did, gzipped JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from differential.recording import Recording, from_compact, to_compact
from differential.workloads import Workload

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def save(path: Path, engine: str, recipe: str, cases: list[tuple[Workload, Recording]]) -> None:
    """Write the cases; the same cases give the same bytes."""
    golden = {
        "engine": engine,
        "recipe": recipe,
        "cases": [
            {"workload": workload, "recording": to_compact(recording, workload)}
            for workload, recording in cases
        ],
    }
    text = json.dumps(golden, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def load(path: Path) -> tuple[str, list[tuple[Workload, Recording]]]:
    """The engine's name and version, and the cases, of one golden file."""
    found = json.loads(content(path))
    cases: list[dict[str, Any]] = found["cases"]
    return found["engine"], [
        (_workload(case["workload"]), from_compact(case["recording"], case["workload"]))
        for case in cases
    ]


def content(path: Path) -> bytes:
    """A golden file unpacked: its packed bytes depend on the zlib that packed them."""
    return gzip.decompress(path.read_bytes())


def golden_files() -> list[Path]:
    """All golden files, by name."""
    return sorted(GOLDEN.glob("*.json.gz"))


def _workload(data: Any) -> Workload:
    for request in data["requests"]:
        request["chain"] = [(segment, tokens) for segment, tokens in request["chain"]]
    workload: Workload = data
    return workload
