"""LoRA slots: the engine against the reference on random workloads, and faults that are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from differential import fast_engine, reference_engine
from differential.compare import first_difference
from differential.coverage import PASSED_OVER, happened
from differential.generate import generate
from differential.generate_lora import generate_lora
from differential.golden import GOLDEN, load
from differential.workloads import adapter_of

from fleetsim.sim.engine.engine import Engine
from fleetsim.sim.engine.lora import LoraSlots
from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.sim.engine.sequence import WAITING

VERSIONS = ("0.32", "0.33")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(24))
def test_engine_equals_reference(seed: int, version: str) -> None:
    workload = generate_lora(seed, version, scale=0.3)
    want = reference_engine.run(workload).without_aborts()
    for run in (fast_engine.run_each_step, fast_engine.run):
        difference = first_difference(want, run(workload), ("reference", "fleetsim"))
        assert difference is None, f"{workload['name']}: {difference}"


def test_seeds_cover_what_slots_do() -> None:
    counts: Counter[str] = Counter()
    for seed in range(24):
        workload = generate_lora(seed, scale=0.3)
        counts.update(workload["features"])
        counts.update(happened(workload, reference_engine.run(workload)))
    for event in (
        PASSED_OVER,
        "steps with more adapters than slots",
        "a prefix under several adapters",
        "preemptions",
        "hit tokens of resumed",
        "requests without one",
    ):
        assert counts[event] > 0, event


def test_without_lora_nobody_is_passed_over() -> None:
    for seed in range(12):
        workload = generate(seed, scale=0.3)
        assert not happened(workload, reference_engine.run(workload))[PASSED_OVER]


def test_adapters_leave_the_rest_of_a_workload_as_it_was() -> None:
    plain, lora = generate(5), generate_lora(5)
    assert any(map(adapter_of, lora["requests"]))
    for request in lora["requests"]:
        request.pop("adapter", None)
    del lora["engine"]["max_loras"]
    assert (lora["engine"], lora["requests"]) == (plain["engine"], plain["requests"])


# -- planted faults ------------------------------------------------------------------------------


def _thinks_nobody_passes(original: Any) -> Callable[[Engine], bool]:
    def indifferent(self: Engine) -> bool:
        scheduler = self.scheduler
        return scheduler.head_blocked and scheduler.n_waiting > 0 and not scheduler.by_priority

    return indifferent


def _does_not_look_at_arrivals(original: Any) -> Callable[..., None]:
    def add(self: Scheduler, sequence: Any) -> None:
        self.all_passed_over = False
        original(self, sequence)

    return add


def _puts_back_to_the_end(original: Any) -> Callable[..., None]:
    return LoraSlots.add


def _a_slot_too_many(original: Any) -> Callable[..., None]:
    return lambda self, max_loras, *others: original(self, max_loras + 1, *others)


def _rule_of_0_33(original: Any) -> Callable[..., None]:
    return lambda self, max_loras, _, by_priority: original(self, max_loras, True, by_priority)


def _adapter_after_adapter(original: Any) -> Callable[..., Any]:
    def head(self: LoraSlots) -> Any:
        first = original(self)
        line = first and self.lines.get(min(self.users, default=first.adapter))
        return line[0][3] if line and line[0][3].state == WAITING else first

    return head


def _shares_blocks(original: Any) -> Callable[..., Any]:
    return lambda request, block_size: original({**request, "adapter": 0}, block_size)


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (Engine, "_indifferent", _thinks_nobody_passes),
        (Scheduler, "add", _does_not_look_at_arrivals),
        (LoraSlots, "put_back", _puts_back_to_the_end),
        (LoraSlots, "head", _adapter_after_adapter),
        (LoraSlots, "__init__", _a_slot_too_many),
        (LoraSlots, "__init__", _rule_of_0_33),
        (fast_engine, "chain_of", _shares_blocks),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_planted_fault_is_caught(
    owner: Any, name: str, fault: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    caught = False
    for workload, golden in load(GOLDEN / "vllm_0.32_lora.json.gz")[1]:
        try:
            found = fast_engine.run(workload)
        except (AssertionError, KeyError):
            caught = True  # the books did not balance
        else:
            caught = caught or first_difference(golden.without_aborts(), found) is not None
    assert caught
