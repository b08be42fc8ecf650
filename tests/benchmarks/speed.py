"""How fast fleetsim is, and how much memory it takes: what `make bench` prints.

Machines differ and are noisy, so speed is counted in bare SimPy timeouts: how many of them the
same process could have run in the CPU time of one request. They are measured between the runs,
and a run is compared with the mean of the two measurements around it.

A run is everything that `fleetsim run` does short of drawing: reading the scenario and the trace,
the simulation, the result folder with all tables. Importing is not counted.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

import simpy

from fleetsim.sim.results.result import Result
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "scenarios" / "azure-conversation.yaml"
AZURE = ROOT.parent / "shared" / "traces" / "azure_2023" / "AzureLLMInferenceTrace_conv.csv"

TIMEOUTS_PER_REQUEST = 60
MEMORY_MB = 350
MEMORY_REQUESTS = 200_000

# The SLO whose capacity is looked for: of the whole run, no warm-up left out.
TTFT_P99_S = 1.0
TPOT_P90_S = 0.050


@dataclass
class Measured:
    """Runs of one load.

    Attributes:
        cpu_s: CPU seconds of each run.
        timeouts: what each run cost per request, in bare timeouts.
    """

    requests: int
    rate_rps: float
    cpu_s: list[float]
    timeouts: list[float]


def bare_timeouts_per_cpu_s(n: int = 300_000) -> float:
    """How many timeouts a SimPy process gets through in a second of CPU time."""

    def process(environment: simpy.Environment) -> simpy.events.ProcessGenerator:
        for _ in range(n):
            yield environment.timeout(1.0)

    environment = simpy.Environment()
    environment.process(process(environment))
    started = process_time()
    environment.run()
    return n / (process_time() - started)


def run(trace: str, out: Path | None, *changes: str) -> Result:
    """One whole run of the benchmark's scenario."""
    overrides = ["measurement={}", *changes]
    return simulate(load_scenario(SCENARIO, overrides, trace=trace), out=out)


def measure(trace: str, time_scale: float, repeats: int) -> Measured:
    """Time whole runs at one load, bare timeouts in between."""
    measured = Measured(0, 0.0, [], [])
    before = bare_timeouts_per_cpu_s()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            started = process_time()
            result = run(trace, Path(folder) / "result", f"workload.time_scale={time_scale}")
            cpu_s = process_time() - started
            measured.rate_rps = offered_rps(result)
        after = bare_timeouts_per_cpu_s()
        requests = result.summary["requests"]["arrived"]
        measured.requests = requests
        measured.cpu_s.append(cpu_s)
        measured.timeouts.append(cpu_s / requests * (before + after) / 2)
        before = after
    return measured


def offered_rps(result: Result) -> float:
    """Requests a second over the time of the arrivals."""
    sent_s = result.columns("requests", ["client_sent_s"])["client_sent_s"]
    return len(sent_s) / float(sent_s.max())


def holds(trace: str, time_scale: float) -> bool:
    """Whether the fleet meets the SLO at this load."""
    frame = run(trace, None, f"workload.time_scale={time_scale}").requests()
    ttft_s = frame["client_ttft_s"].quantile(0.99)
    tpot_s = frame["tpot_s"].quantile(0.90)
    return bool(ttft_s <= TTFT_P99_S and tpot_s <= TPOT_P90_S)


def capacity(trace: str, start: float, precision: float = 0.02) -> float:
    """The highest time_scale that meets the SLO, by doubling and bisection."""
    low = high = start
    while holds(trace, high):
        low, high = high, 2 * high
        if high > 1e4:
            sys.exit(f"{trace}: no load breaks the SLO; this trace is too short to have a limit")
    while not holds(trace, low):
        low, high = low / 2, low
        if low < 1e-4:
            sys.exit(f"{trace}: no load meets the SLO; the fleet is too slow for these requests")
    while high / low > 1 + precision:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(trace, middle) else (low, middle)
    return low


def peak_memory_mb(requests: int) -> float:
    """Peak resident memory of a process that runs so many synthetic requests."""
    command = [sys.executable, __file__, "--only-memory", str(requests)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def only_memory(requests: int) -> float:
    """Run synthetic requests in this process, result folder included; MB of its peak."""
    synthetic = (
        f"{{requests: {requests}, prompt_tokens: 1000, output_tokens: 200, "
        "random_range_ratio: 0.5, arrivals: {rate_per_s: 60}}"
    )
    with tempfile.TemporaryDirectory() as folder:
        changes = ["measurement={}", "workload.time_scale=1", f"workload.synthetic={synthetic}"]
        simulate(load_scenario(SCENARIO, changes), out=Path(folder) / "result")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def verdict(value: float, target: float) -> str:
    """Whether a value is within its target."""
    return f"{'met' if value <= target else 'MISSED'} (target {target:g})"


def report_speed(what: str, measured: Measured) -> None:
    """One line per load."""
    cpu_s = median(measured.cpu_s)
    timeouts = median(measured.timeouts)
    spread = f"{min(measured.timeouts):.0f} to {max(measured.timeouts):.0f}"
    print(
        f"{what:34} {measured.rate_rps:6.1f} req/s {1e6 * cpu_s / measured.requests:6.0f} us "
        f"{measured.requests / cpu_s:8,.0f} req/CPU-s {timeouts:5.0f} timeouts ({spread}): "
        f"{verdict(timeouts, TIMEOUTS_PER_REQUEST)}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", default=str(AZURE) if AZURE.exists() else "sample")
    parser.add_argument("--time-scale", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=5, help="runs per load")
    parser.add_argument("--share", type=float, default=0.9, help="of the SLO capacity")
    parser.add_argument("--only-memory", type=int, metavar="REQUESTS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_memory:
        print(only_memory(options.only_memory))
        return

    trace: str = options.trace
    print(f"trace {Path(trace).name}, 4 replicas of Llama-3.1-8B on H100, power_of_two")
    run(trace, None, "workload.head=500")  # whatever is done once is done now
    print(f"bare SimPy timeouts: {bare_timeouts_per_cpu_s():,.0f} per CPU-second")
    report_speed(
        f"time_scale {options.time_scale:g}", measure(trace, options.time_scale, options.repeats)
    )
    limit = capacity(trace, options.time_scale)
    scale = options.share * limit
    report_speed(
        f"time_scale {scale:.2f}, {options.share:g} of SLO capacity",
        measure(trace, scale, options.repeats),
    )
    peak_mb = peak_memory_mb(MEMORY_REQUESTS)
    print(f"{MEMORY_REQUESTS:,} requests: {peak_mb:.0f} MB peak: {verdict(peak_mb, MEMORY_MB)}")


if __name__ == "__main__":
    main()
