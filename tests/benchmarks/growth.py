"""How the cost of a request grows with the size of what is simulated: what `make bench` prints.

Each pair is measured in turns in one process, the cheapest run of each side counts (what disturbs
a run only adds to it), and the ratio is what matters. Long runs (`--long`) take minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

from speed import ROOT, SCENARIO, verdict

from fleetsim.sim.engine.scheduler import Scheduler
from fleetsim.sim.engine.sequence import Sequence
from fleetsim.sim.engine.settings import EngineSettings
from fleetsim.sim.results.result import Result
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate

MOONCAKE = ROOT.parent / "shared" / "traces" / "mooncake_fast25" / "conversation_trace.jsonl.gz"
MOONCAKE_PER_CPU_S = 3000
RATE_PER_REPLICA = 5.5
LONG_REQUESTS = 2_000_000
LONG_MB = 600


def synthetic(requests: int, prompt_tokens: int, output_tokens: int, more: str = "") -> str:
    """Random lengths around two means, as an override of the scenario."""
    return (
        f"workload.synthetic={{requests: {requests}, prompt_tokens: {prompt_tokens}, "
        f"output_tokens: {output_tokens}, random_range_ratio: 0.5{more}}}"
    )


def cpu_s_per_request(*changes: str) -> float:
    """One whole run with a result folder."""
    with tempfile.TemporaryDirectory() as folder:
        started = process_time()
        overrides = ["measurement={}", "workload.time_scale=1", *changes]
        result = simulate(load_scenario(SCENARIO, overrides), out=Path(folder) / "result")
        arrived: int = result.summary["requests"]["arrived"]
        return (process_time() - started) / arrived


def open_loop(requests: int, replicas: int) -> tuple[str, ...]:
    """Poisson arrivals at a moderate load of each replica."""
    arrivals = f", arrivals: {{rate_per_s: {RATE_PER_REPLICA * replicas}}}"
    return synthetic(requests, 1000, 200, arrivals), f"pools.chat.replicas={replicas}"


def saturated(max_num_seqs: int) -> tuple[str, ...]:
    """One replica with more clients than places, who ask again at once."""
    return (
        synthetic(20_000, 200, 100),
        "workload.closed_loop={concurrency: 1536}",
        "pools.chat.replicas=1",
        f"pools.chat.engine.max_num_seqs={max_num_seqs}",
    )


def report(what: str, small: tuple[str, ...], large: tuple[str, ...], most: float) -> None:
    """Measure both in turns, and print the ratio."""
    small_s, large_s = [], []
    for _ in range(3):
        small_s.append(cpu_s_per_request(*small))
        large_s.append(cpu_s_per_request(*large))
    ratio = min(large_s) / min(small_s)
    print(
        f"{what:46} {1e6 * min(small_s):6.1f} and {1e6 * min(large_s):6.1f} us a request, "
        f"ratio {ratio:.2f}: {verdict(ratio, most)}",
        flush=True,
    )


def decode_step_s(batch: int, steps: int = 2000) -> float:
    """Schedule and update of a step of so many decodes."""
    scheduler = Scheduler(EngineSettings(num_gpu_blocks=1_000_000, async_scheduling=False))
    for i in range(batch):
        # of different lengths, so that their blocks fill in different steps
        scheduler.add(Sequence(i, 0.0, 100 + i % 16, 1_000_000, True, []))
    while scheduler.n_decodes < batch:
        scheduler.schedule()
        scheduler.update()
    started = process_time()
    for _ in range(steps):
        scheduler.schedule()
        scheduler.update()
    return (process_time() - started) / steps


def report_decode_step() -> None:
    """A decode step by itself, without leaps."""
    small_s = min(decode_step_s(8) for _ in range(5))
    large_s = min(decode_step_s(512) for _ in range(5))
    print(
        f"{'a decode step, batch 8 to 512':46} {1e6 * small_s:6.2f} and {1e6 * large_s:6.2f} us, "
        f"ratio {large_s / small_s:.2f}: {verdict(large_s / small_s, 1.5)}",
        flush=True,
    )


def report_mooncake() -> None:
    """Long prompts with shared prefixes, as fast as they are replayed by a whole run."""

    def run() -> Result:
        changes = ["pools.chat.replicas=16", "measurement={}", "workload.time_scale=1"]
        with tempfile.TemporaryDirectory() as folder:
            return simulate(
                load_scenario(SCENARIO, changes, trace=str(MOONCAKE)), out=Path(folder) / "result"
            )

    rates = []
    for _ in range(3):
        started = process_time()
        requests = run().summary["requests"]["arrived"]
        rates.append(requests / (process_time() - started))
    met = "met" if max(rates) >= MOONCAKE_PER_CPU_S else "MISSED"
    print(
        f"Mooncake conversation, 16 replicas: {max(rates):,.0f} requests per CPU-second "
        f"(others {sorted(round(rate) for rate in rates)[:-1]}): {met} "
        f"(target {MOONCAKE_PER_CPU_S:,})",
        flush=True,
    )


def report_long() -> None:
    """Two million requests, and what they take of memory."""
    command = [sys.executable, str(Path(__file__).parent / "speed.py")]
    command += ["--only-memory", str(LONG_REQUESTS)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    peak_mb = float(done.stdout)
    print(f"{LONG_REQUESTS:,} requests: {peak_mb:.0f} MB peak: {verdict(peak_mb, LONG_MB)}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="two million requests too")
    options = parser.parse_args()
    cpu_s_per_request(*open_loop(500, 4))  # whatever is done once is done now
    report_decode_step()
    report("2,000 to 200,000 requests", open_loop(2000, 4), open_loop(200_000, 4), 1.3)
    report("4 to 256 replicas", open_loop(40_000, 4), open_loop(40_000, 256), 1.3)
    report("saturated, max_num_seqs 64 to 1,024", saturated(64), saturated(1024), 1.5)
    if MOONCAKE.exists():
        report_mooncake()
    if options.long:
        report_long()


if __name__ == "__main__":
    main()
