"""Sizing: the chapter's numbers, the formulas' identities, and arguments that are refused."""

from __future__ import annotations

import re
from math import factorial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.calibration import load_profile
from fleetsim.sim import sizing
from fleetsim.sim.sizing import (
    erlang_c,
    fleet_size,
    kv_bytes_per_token,
    littles_law,
    max_concurrent_requests,
    mg1,
    mm1,
    mmc,
)

LLAMA_8B = {"num_layers": 32, "num_kv_heads": 8, "head_dim": 128}
LLAMA_70B = {"num_layers": 80, "num_kv_heads": 8, "head_dim": 128}

# -- the chapter -----------------------------------------------------------------------------


def test_kv_bytes_per_token() -> None:
    assert kv_bytes_per_token(**LLAMA_8B) == 131_072
    assert kv_bytes_per_token(**LLAMA_8B, bytes_per_elem=1) == 65_536
    assert kv_bytes_per_token(num_layers=48, num_kv_heads=8, head_dim=128) == 196_608


def test_max_concurrent_requests() -> None:
    assert max_concurrent_requests(80, 16, 4, **LLAMA_8B, avg_ctx_tokens=2048) == 223
    exercise_3 = {"num_layers": 48, "num_kv_heads": 8, "head_dim": 128, "avg_ctx_tokens": 4096}
    assert max_concurrent_requests(80, 30, 4, **exercise_3) == 57
    # "state what changes if you switch the KV cache to fp8"
    assert max_concurrent_requests(80, 30, 4, **exercise_3, bytes_per_elem=1) == 114


def test_fleet_size() -> None:
    size = fleet_size(40, 20, 12.5, 0.70, 57)
    assert size == (15, "memory-bound")
    assert (size.replicas, size.regime) == (15, "memory-bound")
    assert fleet_size(40, 2, 12.5, 0.70, 57) == (5, "throughput-bound")


@pytest.mark.parametrize(("rho", "w_s"), [(0.70, 0.2667), (0.90, 0.800), (0.95, 1.600)])
def test_mm1_time_in_system(rho: float, w_s: float) -> None:
    queue = mm1(rho / 0.080, 0.080)
    assert queue.mean_time_in_system_s == pytest.approx(w_s, abs=5e-5)
    assert queue.utilization == pytest.approx(rho)


def test_mm1_grows_sixfold_from_70_to_95_per_cent() -> None:
    high, low = mm1(0.95 / 0.08, 0.08), mm1(0.70 / 0.08, 0.08)
    assert high.mean_time_in_system_s / low.mean_time_in_system_s == pytest.approx(6.0)


# -- tensor parallelism ----------------------------------------------------------------------


@pytest.mark.parametrize(("tp", "per_gpu"), [(1, 327_680), (2, 163_840), (4, 81_920), (8, 40_960)])
def test_kv_heads_are_divided_over_gpus(tp: int, per_gpu: int) -> None:
    assert kv_bytes_per_token(**LLAMA_70B, tensor_parallel_size=tp) == per_gpu


def test_more_gpus_than_kv_heads_keep_one_each() -> None:
    assert kv_bytes_per_token(**LLAMA_70B, tensor_parallel_size=16) == 40_960


def test_a_70b_model_needs_several_gpus() -> None:
    with pytest.raises(ValueError, match=r"^hbm_gb: 80 GB do not hold 140 GB of weights"):
        max_concurrent_requests(80, 140, 4, **LLAMA_70B, avg_ctx_tokens=2048)
    on_4 = max_concurrent_requests(
        80, 140, 4, **LLAMA_70B, avg_ctx_tokens=2048, tensor_parallel_size=4
    )
    assert on_4 == int((80 - 35 - 4) * 1e9 // (81_920 * 2048)) == 244


@pytest.mark.parametrize("name", ["llama-3.1-8b-bf16-tp1-h100", "llama-3.1-70b-bf16-tp4-h100"])
def test_bytes_are_those_of_the_profiles(name: str) -> None:
    profile = load_profile(name)
    model = profile.model
    for tp in (1, 2, 4, 8):
        assert profile.kv_bytes_per_token_per_gpu(tp) == kv_bytes_per_token(
            model.num_layers, model.num_kv_heads, model.head_dim, 2, tp
        )


# -- queues ----------------------------------------------------------------------------------

RATES = st.floats(0.01, 1e4)
SERVICES = st.floats(1e-4, 1e3)


@settings(max_examples=50, deadline=None)
@given(service_s=SERVICES, rho=st.floats(0.01, 0.999), servers=st.integers(1, 400))
def test_littles_law_holds_of_every_queue(service_s: float, rho: float, servers: int) -> None:
    rate = rho * servers / service_s
    queue = mmc(rate, service_s, servers)
    assert queue.mean_in_system == pytest.approx(littles_law(rate, queue.mean_time_in_system_s))
    assert queue.mean_waiting == pytest.approx(littles_law(rate, queue.mean_wait_s))
    # those that do not wait are served: rho * c of them
    assert queue.mean_in_system - queue.mean_waiting == pytest.approx(rho * servers, rel=1e-6)
    assert 0.0 <= queue.wait_probability <= 1.0


@settings(max_examples=50, deadline=None)
@given(service_s=SERVICES, rho=st.floats(0.01, 0.99))
def test_one_server_is_erlang_c_of_one_and_cv_1(service_s: float, rho: float) -> None:
    queue = mm1(rho / service_s, service_s)
    assert queue.mean_time_in_system_s == pytest.approx(service_s / (1 - rho))
    general = mg1(rho / service_s, service_s, 1.0)
    assert general.mean_wait_s == pytest.approx(queue.mean_wait_s)
    assert mg1(rho / service_s, service_s, 0.0).mean_wait_s == pytest.approx(queue.mean_wait_s / 2)


def _erlang_c_by_its_definition(servers: int, load: float) -> float:
    waits = load**servers / factorial(servers) / (1 - load / servers)
    return waits / (sum(load**k / factorial(k) for k in range(servers)) + waits)


@pytest.mark.parametrize("servers", [1, 2, 5, 20, 60])
@pytest.mark.parametrize("rho", [0.05, 0.5, 0.8, 0.99])
def test_erlang_c_is_its_definition(servers: int, rho: float) -> None:
    expected = _erlang_c_by_its_definition(servers, rho * servers)
    assert erlang_c(servers, rho * servers) == pytest.approx(expected, rel=1e-10)


def test_erlang_c_of_small_cases_by_hand() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(3, 2.0) == pytest.approx(4 / 9)


def test_erlang_c_neither_overflows_nor_cancels() -> None:
    assert 0.0 < erlang_c(5000, 4900.0) < 1.0
    assert 0.0 <= erlang_c(1000, 10.0) < 1e-300


def test_pooling_helps() -> None:
    """Ten servers behind one queue wait less than ten queues of one."""
    pooled, apart = mmc(9.0, 1.0, 10), mm1(0.9, 1.0)
    assert pooled.mean_wait_s < apart.mean_wait_s / 10


# -- fleets ----------------------------------------------------------------------------------


def test_ties_are_memory_bound_and_rounding_costs_no_replica() -> None:
    assert fleet_size(7, 10, 10, 0.7, 70) == (1, "memory-bound")
    assert fleet_size(3 * 0.1, 1, 0.1, 1.0, 1) == (3, "throughput-bound")
    assert fleet_size(0.001, 0.001, 1000, 1.0, 1000) == (1, "memory-bound")


@settings(max_examples=100, deadline=None)
@given(
    rate=st.floats(0.1, 1e3),
    w_s=st.floats(0.1, 100),
    mu=st.floats(0.1, 100),
    rho=st.floats(0.1, 1),
    n=st.integers(1, 500),
)
def test_a_fleet_of_that_size_meets_both_and_one_less_does_not(
    rate: float, w_s: float, mu: float, rho: float, n: int
) -> None:
    replicas, regime = fleet_size(rate, w_s, mu, rho, n)
    slack = 1 + 1e-6
    assert rate <= replicas * rho * mu * slack
    assert rate * w_s <= replicas * n * slack
    if replicas > 1:
        fewer = replicas - 1
        short_of = {
            "throughput-bound": rate * slack > fewer * rho * mu,
            "memory-bound": rate * w_s * slack > fewer * n,
        }
        assert short_of[regime]


# -- arguments -------------------------------------------------------------------------------

CASES = [
    (kv_bytes_per_token, {**LLAMA_8B}, ("num_layers", "num_kv_heads", "head_dim")),
    (
        max_concurrent_requests,
        {"hbm_gb": 80, "weight_gb": 16, "reserve_gb": 4, **LLAMA_8B, "avg_ctx_tokens": 2048},
        ("hbm_gb", "num_layers", "num_kv_heads", "head_dim", "avg_ctx_tokens"),
    ),
    (mm1, {"arrival_rate_per_s": 1.0, "service_s": 0.5}, ("arrival_rate_per_s", "service_s")),
    (
        mmc,
        {"arrival_rate_per_s": 1.0, "service_s": 0.5, "servers": 2},
        ("arrival_rate_per_s", "service_s", "servers"),
    ),
    (
        mg1,
        {"arrival_rate_per_s": 1.0, "service_s": 0.5, "service_cv": 1.0},
        ("arrival_rate_per_s", "service_s"),
    ),
    (erlang_c, {"servers": 2, "offered_load": 1.0}, ("servers", "offered_load")),
    (
        fleet_size,
        {
            "arrival_rate": 40,
            "mean_time_in_system": 20,
            "service_rate": 12.5,
            "target_utilization": 0.7,
            "n_concurrent_per_replica": 57,
        },
        (
            "arrival_rate",
            "mean_time_in_system",
            "service_rate",
            "target_utilization",
            "n_concurrent_per_replica",
        ),
    ),
]


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("function", "good", "name"),
    [(function, good, name) for function, good, names in CASES for name in names],
    ids=lambda value: getattr(value, "__name__", value if isinstance(value, str) else ""),
)
def test_bad_arguments_are_named(function, good, name, bad) -> None:  # type: ignore[no-untyped-def]
    function(**good)
    with pytest.raises(ValueError, match=f"^{name}: "):
        function(**{**good, name: bad})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mm1(12.5, 0.08), "arrival_rate_per_s: 12.5 is a utilization of 1, and the queue "
         "grows without end; it must be below 12.5"),
        (lambda: mmc(30, 0.1, 3), "arrival_rate_per_s: 30 is a utilization of 1, and the queue "
         "grows without end; it must be below 30"),
        (lambda: erlang_c(3, 3), "offered_load: 3 on 3 servers grows without end; it must be below "
         "the number of servers"),
        (lambda: fleet_size(1, 1, 1, 1.2, 1), "target_utilization: must be at most 1, got 1.2"),
        (lambda: mg1(1, 0.5, -1), "service_cv: must be zero or a positive number, got -1"),
        (lambda: littles_law(-1, 1), "arrival_rate_per_s: must be zero or a positive number, "
         "got -1"),
        (lambda: mmc(1, 0.5, 2.5), "servers: must be a whole number from 1, got 2.5"),  # type: ignore[arg-type]
        (lambda: mmc(1, 0.5, True), "servers: must be a whole number from 1, got True"),
    ],
)  # fmt: skip
def test_what_a_refusal_says(call, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


# -- docs ------------------------------------------------------------------------------------

DOC = Path(__file__).parents[3] / "docs" / "sizing.md"


def test_the_page_shows_what_the_functions_give(capsys: pytest.CaptureFixture[str]) -> None:
    text = DOC.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", text, re.S)
    assert len(blocks) >= 3
    for code, shown in blocks:
        exec(compile(code, str(DOC), "exec"), {})
        assert capsys.readouterr().out == shown


def test_the_page_names_every_function() -> None:
    text = DOC.read_text(encoding="utf-8")
    public = [name for name in vars(sizing) if getattr(vars(sizing)[name], "__module__", "") ==
              sizing.__name__ and not name.startswith("_")]  # fmt: skip
    for name in public:
        assert f"`{name}" in text or name in ("Queue", "FleetSize"), name
