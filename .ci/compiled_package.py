"""The compiled package, in an environment of its own, held against the pure one.

Both are installed there, one after the other, and replay the bundled sample. Their results must
be the same to the last bit.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv-compiled"
BIN = VENV / "bin"

# Prints whether the engine is compiled, the result's hash, and the least CPU time of three runs.
REPLAY = """
from time import process_time
from fleetsim.sim.engine import engine
from fleetsim.sim.scenario import load_scenario
from fleetsim.sim.simulate import simulate
scenario = load_scenario(None, ["pools.chat.replicas=4"])
times = []
for _ in range(3):
    started = process_time()
    result = simulate(scenario)
    times.append(process_time() - started)
print(not engine.__file__.endswith(".py"), result.content_hash(), min(times))
"""


def pip(*arguments: str, compiled: bool = False) -> None:
    """Run pip quietly; it says what went wrong by itself."""
    command = [BIN / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    environment = {**os.environ, "FLEETSIM_MYPYC": "1" if compiled else "0"}
    # What an earlier build left behind would get into this one.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    subprocess.run(command, check=True, env=environment)
    shutil.rmtree(ROOT / "build", ignore_errors=True)


def replay() -> tuple[bool, str, float]:
    """Whether it ran compiled, the hash of what came out, and its CPU seconds."""
    command = [BIN / "python", "-c", REPLAY]
    done = subprocess.run(command, cwd=VENV, check=True, stdout=subprocess.PIPE, text=True)
    compiled, content_hash, cpu_s = done.stdout.split()
    return compiled == "True", content_hash, float(cpu_s)


def main() -> None:
    """Install pure, replay, install compiled, replay, compare."""
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True)
    pip("install", "setuptools>=77", "mypy>=1.10", str(ROOT))
    pip("install", "--no-deps", "--force-reinstall", str(ROOT))
    was_compiled, pure_hash, pure_s = replay()
    build = ("--no-build-isolation", "--no-deps", "--force-reinstall")
    pip("install", *build, str(ROOT), compiled=True)
    is_compiled, compiled_hash, compiled_s = replay()
    if was_compiled or not is_compiled:
        sys.exit(f"compiled before: {was_compiled}, and after: {is_compiled}")
    if compiled_hash != pure_hash:
        sys.exit(f"the sample gives {compiled_hash} compiled, {pure_hash} in pure Python")
    print(f"the same result from {compiled_s:.2f} s of CPU, which takes {pure_s:.2f} s in Python")
    print(f"{BIN.relative_to(ROOT) / 'fleetsim'} is compiled")


if __name__ == "__main__":
    main()
