"""A fault planted in fleetsim's scheduler, and how the comparison catches and explains it.

    python tests/differential/planted_fault.py

vLLM preempts the request that was admitted last. Here it is the first one, which is the mistake one
makes by taking the running list for a queue.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# last: an engine under test may import the checkout
sys.path.append(str(Path(__file__).resolve().parents[2]))

from differential import fast_engine
from differential.compare import differing_steps, first_difference
from differential.golden import GOLDEN, load
from differential.recording import Recording
from differential.workloads import Workload

from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings

RECORDED = GOLDEN / "vllm_0.32_fcfs_sync.json.gz"
WORKLOAD = "seed 178"


class _Queue(list[Sequence]):
    """A running list whose last out is the first in."""

    def pop(self, index: int = 0) -> Sequence:  # type: ignore[override]
        return super().pop(index)


class FirstInFirstOut(fast_engine.RecordingScheduler):
    """Preempts from the wrong end of the running list."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.running = _Queue()

    def compact(self) -> None:
        """Drop the dead, and stay wrong."""
        super().compact()
        self.running = _Queue(self.running)


def preempting_case() -> tuple[str, Workload, Recording]:
    """A recorded workload with preemptions early on, and who recorded it."""
    engine, cases = load(RECORDED)
    workload, recording = next(case for case in cases if case[0]["name"] == WORKLOAD)
    return engine, workload, recording.without_aborts()


def main() -> int:
    """Show what the comparison says; exit code 1 if it says nothing."""
    engine, workload, recorded = preempting_case()
    right = fast_engine.run(workload)
    wrong = fast_engine.run(workload, scheduler=FirstInFirstOut)
    text = first_difference(recorded, wrong, (engine, "with the fault"))
    print(f"{workload['name']}, {len(recorded.rows)} steps recorded from {engine}")
    print(f"without the fault {differing_steps(recorded, right)} steps differ")
    print(f"with the first of running as victim {differing_steps(recorded, wrong)} steps differ:")
    print(text)
    return int(text is None or differing_steps(recorded, right) > 0)


if __name__ == "__main__":
    sys.exit(main())
