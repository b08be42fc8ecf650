"""The bundled sample: reproducible, labelled synthetic, and shaped as its statistics say."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fleetsim.traces import Trace, build_segments, load_sample, load_trace, trace_stats
from fleetsim.traces.samples.generate import BLOCK_TOKENS, BURST_S, SAMPLE_FILE, generate

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def sample() -> Trace:
    return load_sample()


def test_is_what_its_code_generates(sample: Trace) -> None:
    fresh = generate()
    assert fresh.content_hash() == sample.content_hash()
    assert fresh.metadata == sample.metadata


def test_command_writes_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    written = []
    for hash_seed in ("1", "2"):
        path = tmp_path / f"{hash_seed}.parquet"
        subprocess.run(
            [sys.executable, "-m", "fleetsim.traces.samples.generate", str(path)],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        written.append(path)
    assert written[0].read_bytes() == written[1].read_bytes()
    # another pyarrow may lay the same columns out differently
    if pq.read_metadata(written[0]).created_by == pq.read_metadata(SAMPLE_FILE).created_by:
        assert written[0].read_bytes() == SAMPLE_FILE.read_bytes()


def test_says_that_it_is_synthetic(sample: Trace) -> None:
    metadata = sample.metadata
    assert "synthetic" in metadata.source_name
    assert metadata.transforms[0]["synthetic"] is True
    assert any("BurstGPT" in source for source in metadata.transforms[0]["statistics"])
    assert metadata.licence == "Apache-2.0"
    assert metadata.rows_read == metadata.rows_kept == len(sample)


def test_is_small_and_takes_ten_minutes(sample: Trace) -> None:
    assert SAMPLE_FILE.stat().st_size < 400_000
    assert 3000 <= len(sample) <= 8000
    assert trace_stats(sample).span_s == pytest.approx(600, abs=2)


def test_has_a_burst_in_the_middle(sample: Trace) -> None:
    begin, end = BURST_S
    times = sample.arrival_s
    calm = (times < begin).sum() / begin
    burst = ((times >= begin) & (times < end)).sum() / (end - begin)
    assert calm == pytest.approx(8, abs=0.8)
    assert burst == pytest.approx(31, abs=3)


def test_lengths_follow_the_published_statistics(sample: Trace) -> None:
    assert sample.tenant is not None

    def of(tenant: str, column: np.ndarray) -> tuple[float, float]:
        rows = sample.tenant.codes == sample.tenant.names.index(tenant)
        return float(np.median(column[rows])), float(column[rows].mean())

    # the means lie below the published ones because replies are cut at the same limits
    assert of("chat", sample.output_tokens) == pytest.approx((129, 205), rel=0.1)
    assert of("support", sample.output_tokens) == pytest.approx((129, 205), rel=0.1)
    assert of("code", sample.output_tokens) == pytest.approx((13, 28), rel=0.2)
    assert of("chat", sample.prompt_tokens) == pytest.approx((1020, 1155), rel=0.35)
    assert of("code", sample.prompt_tokens) == pytest.approx((1469, 2048), rel=0.15)
    assert (sample.max_tokens >= sample.output_tokens).all()


def test_turns_grow_and_extend_the_chain_of_the_turn_before(sample: Trace) -> None:
    assert sample.session is not None
    assert sample.turn is not None
    assert sample.block_ids is not None
    assert sample.block_offsets is not None
    before: dict[int, int] = {}
    followed = 0
    for row, session in enumerate(sample.session.codes.tolist()):
        if session in before:
            last = before[session]
            followed += 1
            assert sample.turn[row] == sample.turn[last] + 1
            grown = sample.prompt_tokens[last] + sample.output_tokens[last]
            assert sample.prompt_tokens[row] > grown
            old, new = (
                sample.block_ids[sample.block_offsets[r] : sample.block_offsets[r + 1]]
                for r in (last, row)
            )
            assert (new[: len(old)] == old).all()
        before[session] = row
    assert followed > len(sample) / 3
    assert (np.diff(sample.block_offsets) == sample.prompt_tokens // BLOCK_TOKENS).all()


def test_sessions_share_system_prompts(sample: Trace) -> None:
    segments = build_segments(sample)
    assert segments is not None
    roots = np.flatnonzero(segments.parent == -1)
    users = np.bincount(segments.segment_ids, minlength=len(segments.parent))[roots]
    shared = roots[users > 100]
    assert sorted(segments.end_token[shared].tolist()) == [128, 192, 256, 320, 448, 448]
    share = trace_stats(sample).ideal_prefix_hit_share
    assert share == pytest.approx(0.62, abs=0.02)


def test_loads_as_any_trace_file(sample: Trace) -> None:
    assert load_trace(SAMPLE_FILE).content_hash() == sample.content_hash()
