"""Seeded random workloads with LoRA adapters: those of `generate`, with adapters dealt out.

The adapters have a `Random` of their own, so the workload of a seed is otherwise what it is without
them, and stays what it was. Some prefixes are used under one adapter only, some under several: the
same tokens, and no block in common.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

from differential.generate import generate
from differential.workloads import Workload, adapter_of, check


def generate_lora(seed: int, engine_version: str = "0.32", scale: float = 1.0) -> Workload:
    """The workload of a seed, with adapters; arguments are those of `generate`."""
    workload = generate(seed, engine_version, scale)
    rng = Random(f"lora/{seed}")
    workload["name"] += " with LoRA"
    workload["engine"]["max_loras"] = rng.choice([1, 1, 2, 3, 4])
    _deal(rng, workload)
    workload["features"] = sorted({*workload["features"], *_features(workload)})
    check(workload)
    return workload


def _deal(rng: Random, workload: Workload) -> None:
    """Give requests their adapters: some are asked for more than others."""
    adapters = range(1, rng.choice([2, 3, 5, 10]) + 1)
    popularity = [1.0 / adapter ** rng.choice([0.0, 1.0]) for adapter in adapters]
    plain_share = rng.choice([0.0, 0.2, 0.6])
    # how often a request with a shared prefix keeps to the adapter of that prefix
    loyalty = rng.choice([0.0, 0.7, 1.0])
    of_prefix: dict[int, int] = {}
    for request in workload["requests"]:
        adapter = rng.choices(adapters, popularity)[0]
        if rng.random() < plain_share:
            adapter = 0
        if request["chain"]:
            usual = of_prefix.setdefault(request["chain"][0][0], adapter)
            if rng.random() < loyalty:
                adapter = usual
        if adapter:
            request["adapter"] = adapter


def _features(workload: Workload) -> set[str]:
    features = {f"max_loras {workload['engine'].get('max_loras')}"}
    of_prefix: dict[int, set[int]] = defaultdict(set)
    for request in workload["requests"]:
        features.add("requests with an adapter" if adapter_of(request) else "requests without one")
        if request["chain"]:
            of_prefix[request["chain"][0][0]].add(adapter_of(request))
    if any(len(adapters) > 1 for adapters in of_prefix.values()):
        features.add("a prefix under several adapters")
    return features
