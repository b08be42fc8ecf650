"""The parts of a profile beside its step cost: host work by version, start-up, uncertainty."""

import math

import pytest

from fleetsim.calibration import HostWork, load_profile
from fleetsim.calibration.overheads import HostWorkRecord, host_work_for
from fleetsim.calibration.recipes import START_UP, START_UP_FP8_EXPERTS
from fleetsim.calibration.start_up import Spread
from fleetsim.calibration.uncertainty import Uncertainty
from fleetsim.sim.engine.step_cost import StepCost


def record(mode, version):
    return HostWorkRecord(mode=mode, engine_version=version, work=HostWork(), source="stated")


RECORDS = tuple(
    record(*r)
    for r in (
        ("async", "vLLM 0.10.2"),
        ("async", "vLLM 0.9"),
        ("sync", "any"),
        ("async", "vLLM 0.19"),
    )
)


@pytest.mark.parametrize(
    ("mode", "version", "found"),
    [
        ("async", None, "vLLM 0.19"),
        ("async", "0.32", "vLLM 0.19"),
        ("async", "0.19", "vLLM 0.19"),
        ("async", "0.18.9", "vLLM 0.10.2"),
        ("async", "0.10", "vLLM 0.9"),
        ("async", "0.6", "vLLM 0.9"),
        ("sync", "0.32", "any"),
        ("sync", None, "any"),
    ],
)
def test_host_work_is_that_of_the_nearest_engine(mode, version, found):
    assert host_work_for(RECORDS, mode, version).engine_version == found


def test_the_engine_s_version_chooses_the_host_work():
    profile = load_profile("llama-3.1-8b-bf16-tp1-h100")
    old = HostWorkRecord(
        mode="sync", engine_version="vLLM 0.6", work=HostWork(base_s=0.5), source="stated"
    )
    both = profile.model_copy(update={"host_work": (*profile.host_work, old)})
    assert StepCost.from_profile(both, "sync", "0.7").decode_step_s(1, 1) > 0.5
    assert StepCost.from_profile(both, "sync", "0.32").decode_step_s(1, 1) < 0.1


def test_a_start_is_the_sum_of_its_phases():
    shortest = START_UP.seconds(9_000_000_000, cached=False, share=0.0)
    assert shortest == pytest.approx(10 + 2 + 2 + 15 + 0 + 4)
    assert START_UP.seconds(9_000_000_000, cached=True, share=1.0) == pytest.approx(
        19 + 9 + 12 + 15 + 20
    )
    slow = START_UP_FP8_EXPERTS
    assert slow.seconds(0, cached=False) - START_UP.seconds(0, cached=False) == pytest.approx(140)
    assert slow.seconds(0, cached=True) == START_UP.seconds(0, cached=True)


def test_published_starts_lie_within_the_phases():
    """From start to health on an H100 (vLLM issue 47456, Qwen3-8B): 86.6 s cold, 28.8 s prebuilt.

    And Qwen3-32B, of `vllm bench startup` (vLLM pull request 32191): 68.5 s cold, 43.9 s warm.
    """
    starts = ((16_400_000_000, 86.6, 28.8), (65_000_000_000, 68.5, 43.9))
    for weights_bytes, cold_s, cached_s in starts:
        for cached, measured_s in ((False, cold_s), (True, cached_s)):
            low, high = (START_UP.seconds(weights_bytes, cached, share) for share in (0.0, 1.0))
            assert low <= measured_s <= high, (weights_bytes, cached)


def test_a_spread_rises_from_zero():
    with pytest.raises(ValueError, match="must rise from at least 0"):
        Spread(low=2.0, high=1.0, source="stated")
    with pytest.raises(ValueError, match="must rise from at least 0"):
        Spread(low=-1.0, high=1.0, source="stated")


def test_uncertainty_factors_are_quantiles():
    spread = Uncertainty(decode_log_sd=0.1, prefill_log_sd=0.3, source="stated")
    assert spread.factors(0.5, 0.5) == (1.0, 1.0)
    one_sd_up = 0.8413447460685429
    assert spread.factors(one_sd_up, 0.5)[0] == pytest.approx(math.exp(0.1))
    assert spread.factors(0.5, 1 - one_sd_up)[1] == pytest.approx(math.exp(-0.3))
