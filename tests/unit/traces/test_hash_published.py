"""Hashing the token ids of a published trace keeps how its prompts begin alike."""

import gzip
import json
from pathlib import Path

import pytest
from unit.traces.own_logs import lines
from unit.traces.prefix_oracle import ideal_hit_share

from fleetsim.traces import load_trace, trace_stats
from fleetsim.traces.hash_prompts import hash_log
from fleetsim.traces.prompt_blocks import BlockCutter
from fleetsim.traces.salted_hash import SaltedHash


def test_sharegpt_prompts(shared_dir: Path, tmp_path: Path) -> None:
    source = shared_dir / "traces/llmservingsim/sharegpt-llama-3.1-8b-300-sps10.jsonl.gz"
    with gzip.open(source) as file:
        rows = [json.loads(line) for line in file]
    log = tmp_path / "log.jsonl"
    log.write_text(
        lines(
            *(
                {
                    "timestamp": 1772366400_000000000 + row["arrival_time_ns"],
                    "request": {"prompt": row["input_tok_ids"]},
                    "response": {
                        "usage": {
                            "prompt_tokens": row["input_toks"],
                            "completion_tokens": row["output_toks"],
                        }
                    },
                }
                for row in rows
            )
        )
    )
    out = tmp_path / "out.parquet"
    hash_log(log, SaltedHash(b"0123456789abcdef"), BlockCutter(16)).to_parquet(out)
    stats = trace_stats(load_trace(out))
    assert stats.requests == 300
    expected = ideal_hit_share([row["input_tok_ids"] for row in rows], 16)
    assert expected > 0.05
    assert stats.ideal_prefix_hit_share == pytest.approx(expected, abs=1e-12)
