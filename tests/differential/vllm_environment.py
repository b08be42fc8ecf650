"""Environment variables that vLLM reads when it is imported: import this before anything of it."""

from __future__ import annotations

import os

VARIABLES = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    # the engine core in this process, so that its scheduler can be looked at
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    # without these two, OpenMP threads fight over the cores and a step takes 50 times as long
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}

for _name, _value in VARIABLES.items():
    os.environ.setdefault(_name, _value)
