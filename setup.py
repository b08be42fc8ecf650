"""The optional compiled build; everything else is in pyproject.toml.

With FLEETSIM_MYPYC=1 in the environment, mypyc (part of mypy) and a C compiler turn the modules
that a request passes through into extension modules: several times as fast, and the same results
to the last bit. Otherwise fleetsim is pure Python, and needs neither. `make compiled` does it.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup

# folder of the checkout -> package; mypyc reads a module's name off its path.
ROOMS = {
    "fleetsim": "fleetsim",
    "sim": "fleetsim/sim",
    "policies": "fleetsim/policies",
    "traces": "fleetsim/traces",
    "calibration": "fleetsim/calibration",
}
HOT = (
    "api_server",
    "client",
    "clock",
    "engine/batch",
    "engine/blocks",
    "engine/decode_run",
    "engine/engine",
    "engine/kv_cache",
    "engine/lora",
    "engine/running",
    "engine/scheduler",
    "engine/sequence",
    "engine/step_cost",
    "engine/step_log",
    "engine/validity",
    "engine/waiting",
    "fleet",
    "gateway",
    "randomness",
    "replica",
    "request",
    "router",
    "sessions",
)
LAYOUT = Path("build/mypyc")


def compiled() -> list[Extension]:
    """The hot modules, translated to C from a copy that is laid out as the package is."""
    from mypyc.build import mypycify

    shutil.rmtree(LAYOUT, ignore_errors=True)
    for room, package in ROOMS.items():
        shutil.copytree(room, LAYOUT / package, ignore=shutil.ignore_patterns("__pycache__"))
    extensions: list[Extension] = mypycify(
        [
            "--config-file=",
            "--ignore-missing-imports",
            "--follow-imports=silent",
            *(str(LAYOUT / "fleetsim" / "sim" / f"{module}.py") for module in HOT),
        ],
        debug_level="0",
        target_dir=str(LAYOUT / "c"),
        group_name="fleetsim",
    )
    if os.name != "nt":
        for extension in extensions:
            # A multiplication and an addition fused into one would round once instead of twice.
            extension.extra_compile_args.append("-ffp-contract=off")
    return extensions


# Setuptools runs this file for the metadata alone, too.
builds = {"bdist_wheel", "build_ext"}.intersection(sys.argv)
setup(ext_modules=compiled() if builds and os.environ.get("FLEETSIM_MYPYC") == "1" else [])
