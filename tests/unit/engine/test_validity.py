"""Steps outside a profile's fit are counted, one by one or a run at a time."""

from __future__ import annotations

import pytest

from fleetsim.calibration.profile import Validity
from fleetsim.sim.engine.decode_run import DecodeRun
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.engine.validity import ValidityWatch

FIT = Validity(max_decodes=8, max_step_tokens=100, max_context_tokens=500, max_kv_tokens=1000)


def settings(**options: int) -> EngineSettings:
    inside = {
        "num_gpu_blocks": 63,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 100,
        "max_model_len": 500,
    }
    return EngineSettings(**{**inside, **options})


def test_where_nothing_can_be_outside_nothing_is_watched() -> None:
    assert ValidityWatch.if_needed(None, settings()) is None
    assert ValidityWatch.if_needed(FIT, settings()) is None


@pytest.mark.parametrize(
    "option",
    [
        {"num_gpu_blocks": 64},  # 63 usable blocks of 16 hold 1,008 tokens
        {"max_num_seqs": 9},
        {"max_num_batched_tokens": 101},
        {"max_model_len": 501},
    ],
)
def test_where_a_limit_is_wider_than_the_fit_there_is_a_watch(option: dict[str, int]) -> None:
    assert ValidityWatch.if_needed(FIT, settings(**option)) is not None


def test_single_steps() -> None:
    watch = ValidityWatch(FIT)
    for step in ((8, 1000, 100), (9, 10, 9), (1, 1001, 1), (0, 0, 101), (9, 1001, 101)):
        watch.step(*step)
    assert (watch.steps, watch.outside) == (5, 4)


@pytest.mark.parametrize("n", [1, 3, 8, 9, 101])
@pytest.mark.parametrize("kv_tokens", [0, 970, 999, 1000, 1001])
@pytest.mark.parametrize("steps", [0, 1, 2, 10, 40])
def test_a_run_counts_what_its_steps_would(n: int, kv_tokens: int, steps: int) -> None:
    by_run, by_step = ValidityWatch(FIT), ValidityWatch(FIT)
    by_run.run(DecodeRun(0.0, n, kv_tokens, (1.0, 0.0, 0.0, 0.0)), steps)
    for k in range(steps):
        by_step.step(n, kv_tokens + k * n, n)
    assert (by_run.steps, by_run.outside) == (by_step.steps, by_step.outside)


def test_requests() -> None:
    watch = ValidityWatch(FIT)
    for tokens in (500, 501, 1):
        watch.request(tokens)
    assert watch.too_long == 1
