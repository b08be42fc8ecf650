"""The fit of overheads finds what our own engine was given."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from fleetsim.calibration import HostWork, Profile, StepCostParameters, analytic_profile
from fleetsim.calibration.silicon import MODELS, SiliconRow
from fleetsim.sim.backtest.overhead_fit import OverheadFit
from fleetsim.sim.backtest.validation import setup_of, simulate_row

HOST = HostWork(residue_s=0.4e-3, residue_per_seq_s=30e-6, fitted_seqs=32)


def profile(latency_s: float) -> Profile:
    cost = StepCostParameters(constant_s=5e-3, token_slopes_s=(2e-5,))
    return analytic_profile(cost, num_gpu_blocks=9000, api_latency_s=latency_s)


def rows() -> list[SiliconRow]:
    """Runs as our engine would have measured them, with these overheads."""
    made = []
    for size in (2, 4):
        for concurrency in (2, 8, 32):
            row = SiliconRow(
                row_id=f"{size}-{concurrency}",
                model=MODELS["Qwen/Qwen3-32B"],
                gpu="h100",
                tensor_parallel_size=size,
                engine_version="0.18.0",
                mode="async",
                kv_cache_dtype="auto",
                concurrency=concurrency,
                prompt_tokens=400,
                output_tokens=60,
                ttft_s=1.0,
                tpot_s=1.0,
            )
            measured = simulate_row(row, profile(0.012), HOST)
            made.append(replace(row, ttft_s=measured.ttft_s, tpot_s=measured.tpot_s))
    return made


def test_host_work_and_latency_come_out_as_they_were() -> None:
    measured = rows()
    profiles = {setup_of(row): profile(0.012) for row in measured}
    with ThreadPoolExecutor(1) as pool:
        runs = OverheadFit(measured, profiles, pool)
        found = runs.fit_host()
        assert found.values == pytest.approx((HOST.residue_s, HOST.residue_per_seq_s), rel=0.02)
        assert np.median(found.errors) < 1e-3
        rest, left_out = runs.without(2)
        assert {row.tensor_parallel_size for row in rest.rows} == {4}
        assert {row.tensor_parallel_size for row in left_out.rows} == {2}
        assert np.median(left_out.host_errors(rest.fit_host().values).errors) < 1e-3
        others = {setup_of(row): profile(0.001) for row in measured}
        latency = OverheadFit(measured, others, pool).fit_latency(HOST, occupying_s=0.0)
        # A request is seen when the next step of over 5 ms begins: no run tells it to the ms.
        assert latency.values == pytest.approx((0.0, 0.012), abs=1e-3)
        assert np.median(latency.errors) < 0.01


def test_a_run_that_was_disturbed_does_not_steer() -> None:
    measured = rows()
    disturbed = replace(measured[1], row_id="disturbed", tpot_s=3 * measured[1].tpot_s)
    profiles = {setup_of(row): profile(0.012) for row in measured}
    with ThreadPoolExecutor(1) as pool:
        found = OverheadFit([*measured, disturbed], profiles, pool).fit_host()
    # the mean of the squares would have it 10 to 30 % off everywhere
    assert np.sort(found.errors)[:-1].max() < 0.02
