"""Stats files as the stat logger writes them, of a run that our own engine made."""

import json
from pathlib import Path
from typing import Any

from unit.calibration.step_files import HEADER

from fleetsim.sim.backtest import MeasuredRun, Replay

STATS_HEADER: dict[str, Any] = HEADER | {
    "format": "fleetsim stats",
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "num_gpu_blocks": 2000,
    "engine_index": 0,
    "api_processes": 1,
}


def write_stats(
    path: Path, asked: MeasuredRun, made: Replay, header: dict[str, Any] | None = None
) -> Path:
    """Requests in the order in which they end, at a wall clock."""
    lines = [json.dumps(header or STATS_HEADER)]
    ends = asked.arrival_s + made.e2e_s
    for i in ends.argsort().tolist():
        decode_s = made.e2e_s[i] - made.ttft_s[i]
        finished = {
            "request_id": f"r{i}",
            "finish_reason": "length",
            "prompt_tokens": int(asked.prompt_tokens[i]),
            "output_tokens": int(asked.output_tokens[i]),
            "cached_tokens": 0,
            "e2e_s": made.e2e_s[i],
            "queued_s": made.ttft_s[i] - made.engine_ttft_s[i],
            "prefill_s": made.engine_ttft_s[i],
            "decode_s": decode_s,
        }
        wall_s = 1.7e9 + ends[i]
        lines.append(
            json.dumps(
                {
                    "monotonic_s": ends[i],
                    "wall_s": wall_s,
                    "iteration_s": wall_s,
                    "generation_tokens": int(asked.output_tokens[i]),
                    "finished": [finished],
                }
            )
        )
    path.write_text("\n".join(lines) + "\n")
    return path
