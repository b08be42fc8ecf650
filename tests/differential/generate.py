"""Seeded random workloads that together cover every feature of the scheduler under test.

Each workload draws the engine's settings and a crowd of requests from `random.Random(seed)`; the
features it has are listed in it, so that a fuzz run can print what it covered.
"""

from __future__ import annotations

from random import Random

from differential.workloads import (
    EngineSettings,
    RequestSpec,
    Workload,
    check,
    output_limit,
)

_ARRIVAL_GRID = 2.0**20  # arrivals are whole multiples of 1 / this
_FIRST_OUTPUT_SEGMENT = 1 << 20


def generate(seed: int, engine_version: str = "0.32", scale: float = 1.0) -> Workload:
    """The workload of a seed; `scale` multiplies the number of requests (golden files use less)."""
    rng = Random(seed)
    engine = _engine(rng, seed, engine_version)
    crowd = _Crowd(rng, engine, max(3, round(rng.choice([20, 50, 100, 200]) * scale)))
    requests = crowd.requests()
    engine["num_gpu_blocks"] = _pool_blocks(rng, engine, requests)
    workload: Workload = {
        "name": f"seed {seed}",
        "features": _features(engine, crowd),
        "engine": engine,
        "requests": requests,
    }
    check(workload)
    return workload


def _engine(rng: Random, seed: int, engine_version: str) -> EngineSettings:
    """Settings; sync/async and FCFS/priority alternate with the seed so both are always there."""
    max_model_len = rng.choice([96, 200, 512, 1024, 2000])
    budget = rng.choice([24, 64, 100, 256, 512])
    chunked = rng.random() < 0.8
    if not chunked:
        budget = max(budget, max_model_len)  # vLLM refuses less
    threshold = rng.choice([0, 0, 0, 8, 20, 33, 64])
    return {
        "engine_version": engine_version,
        "async_scheduling": seed % 2 == 1,
        "policy": "priority" if seed % 3 == 2 else "fcfs",
        "max_num_seqs": min(budget, rng.choice([1, 2, 4, 8, 16, 32, 64, 128])),
        "max_num_batched_tokens": budget,
        "max_model_len": max_model_len,
        "block_size": rng.choice([16, 16, 32]),
        "num_gpu_blocks": 0,  # chosen once the requests are known
        "enable_prefix_caching": rng.random() < 0.8,
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": min(threshold, max_model_len),
        "watermark": rng.choice([0.0, 0.0, 0.0, 0.01, 0.1, 0.3]),
        "scheduler_reserve_full_isl": rng.random() < 0.6,
    }


class _Crowd:
    """Draws the requests of one workload and notes which features they have."""

    def __init__(self, rng: Random, engine: EngineSettings, count: int) -> None:
        self.rng = rng
        self.engine = engine
        self.count = count
        self.next_segment = 1
        self.next_output_segment = _FIRST_OUTPUT_SEGMENT
        self.trees = self._trees()
        self.gap_s = rng.choice([0.0, 0.002, 0.01, 0.01, 0.04, 0.2])
        self.eos_share = rng.choice([0.0, 0.4, 0.9])
        self.abort_share = rng.choice([0.0, 0.0, 0.15, 0.4])
        self.shared_share = rng.choice([0.0, 0.5, 0.9])
        self.twin_share = rng.choice([0.0, 0.1, 0.4])
        self.session_share = rng.choice([0.0, 0.0, 0.3, 0.7])
        # a turn that comes too early finds the one before still waiting or running
        self.think_s = rng.choice([0.02, 0.3, 3.0])
        self.priorities = rng.choice([1, 2, 4])
        self.prompt_scale = rng.choice([0.1, 0.3, 0.8])
        self.output_scale = rng.choice([4, 15, 50, 150])
        self.features: set[str] = set()

    def requests(self) -> list[RequestSpec]:
        """All requests in order of arrival, with ids that sort the same way."""
        drawn: list[RequestSpec] = []
        now_s = 0.0
        while len(drawn) < self.count:
            if self.gap_s:
                now_s += self.rng.expovariate(1.0 / self.gap_s)
                if self.rng.random() < 0.1:
                    now_s += self.rng.choice([0.5, 2.0])  # let the engine run dry
            if drawn and self.rng.random() < self.twin_share:
                self.features.add("twins")
                drawn.append(self._twin(drawn[-1]))
            elif self.rng.random() < self.session_share:
                drawn += self._session(now_s)
            else:
                drawn.append(self._request(now_s, self._chain()))
        drawn.sort(key=lambda r: r["arrival_s"])  # stable: twins stay together
        for i, request in enumerate(drawn):
            request["id"] = f"r{i:04d}"
        return drawn

    def _trees(self) -> list[list[list[tuple[int, int]]]]:
        """A few trees of prompt segments, each as the list of its paths from the root."""
        trees = []
        longest = self.engine["max_model_len"] * 6 // 10
        for _ in range(self.rng.choice([1, 2, 4])):
            paths: list[list[tuple[int, int]]] = [[]]
            for _ in range(self.rng.choice([1, 3, 7])):
                parent = self.rng.choice(paths)
                segment = self._segment(self.rng.randint(1, max(1, longest // 3)))
                if sum(tokens for _, tokens in parent) + segment[1] <= longest:
                    paths.append([*parent, segment])
            trees.append(paths)
        return trees

    def _segment(self, tokens: int) -> tuple[int, int]:
        if self.rng.random() < 0.3:  # on the block grid
            size = self.engine["block_size"]
            tokens = max(1, tokens // size) * size
        self.next_segment += 1
        return (self.next_segment, tokens)

    def _chain(self) -> list[tuple[int, int]]:
        if self.rng.random() >= self.shared_share:
            return []
        chain = self.rng.choice(self.rng.choice(self.trees))
        if chain:
            self.features.add("shared prefix")
            if sum(tokens for _, tokens in chain) % self.engine["block_size"]:
                self.features.add("shared prefix off the block grid")
        return list(chain)

    def _request(self, arrival_s: float, chain: list[tuple[int, int]]) -> RequestSpec:
        room = self.engine["max_model_len"] - 1 - sum(tokens for _, tokens in chain)
        mean = max(1.0, self.engine["max_model_len"] * self.prompt_scale / 2)
        rest = min(room, int(self.rng.expovariate(1.0 / mean)) + self.rng.randint(0, 1))
        if not chain:
            rest = max(1, rest)
        request: RequestSpec = {
            "id": "",
            "arrival_s": round(arrival_s * _ARRIVAL_GRID) / _ARRIVAL_GRID,
            "prompt_tokens": sum(tokens for _, tokens in chain) + rest,
            "output_tokens": 1,
            "max_tokens": 1 + int(self.rng.expovariate(1.0 / self.output_scale)),
            "stop": "length",
            "priority": self.rng.randrange(self.priorities),
            "chain": chain,
            "output_segment": None,
            "abort_s": None,
        }
        self._draw_end(request)
        if self.rng.random() < self.abort_share:
            self.features.add("abort")
            request["abort_s"] = self._soon(request["arrival_s"], self.rng.choice([0.01, 0.1, 0.5]))
        if request["prompt_tokens"] > self.engine["max_num_batched_tokens"]:
            self.features.add("prompt longer than the budget")
        return request

    def _draw_end(self, request: RequestSpec) -> None:
        limit = output_limit(self.engine, request)
        if limit < request["max_tokens"]:
            self.features.add("max_model_len stop")
        if self.rng.random() < self.eos_share:
            self.features.add("eos stop")
            request["stop"] = "eos"
            request["output_tokens"] = self.rng.randint(1, limit)
        else:
            request["stop"] = "length"
            request["output_tokens"] = limit

    def _twin(self, other: RequestSpec) -> RequestSpec:
        """Another request with the same whole prompt at the same time."""
        if sum(tokens for _, tokens in other["chain"]) < other["prompt_tokens"]:
            self._name_rest(other)
        twin: RequestSpec = {
            **other,
            "output_segment": None,
            "abort_s": None,
            "chain": list(other["chain"]),
        }
        self._draw_end(twin)
        return twin

    def _name_rest(self, request: RequestSpec) -> None:
        """Turn the unique rest of a prompt into a segment, so that another prompt can hold it."""
        rest = request["prompt_tokens"] - sum(tokens for _, tokens in request["chain"])
        if rest:
            self.next_segment += 1
            request["chain"] = [*request["chain"], (self.next_segment, rest)]

    def _session(self, arrival_s: float) -> list[RequestSpec]:
        """Turns whose prompts hold all that was said before, what the model said included."""
        turns = [self._request(arrival_s, self._chain())]
        while self.rng.random() < 0.7:
            last = turns[-1]
            said = last["prompt_tokens"] + last["output_tokens"]
            if said + 8 >= self.engine["max_model_len"]:
                break
            self._name_rest(last)
            last["output_segment"] = self.next_output_segment
            chain = [*last["chain"], (self.next_output_segment, last["output_tokens"])]
            self.next_output_segment += 1
            turns.append(self._request(self._soon(last["arrival_s"], self.think_s), chain))
            self.features.add("multi-turn")
        for turn in turns:
            if turn["output_segment"] is not None:
                turn["abort_s"] = None  # what follows was said in full
        return turns

    def _soon(self, time_s: float, mean_s: float) -> float:
        later_s = time_s + self.rng.expovariate(1.0 / mean_s)
        return round(later_s * _ARRIVAL_GRID) / _ARRIVAL_GRID


def _pool_blocks(rng: Random, engine: EngineSettings, requests: list[RequestSpec]) -> int:
    """From "only just holds the largest request" to "nobody ever waits for a block"."""
    size = engine["block_size"]
    needs = sorted(-(-(r["prompt_tokens"] + r["output_tokens"] - 1) // size) for r in requests)
    largest, usual = needs[-1], needs[len(needs) // 2]
    together = min(engine["max_num_seqs"], len(requests))
    usable = rng.choice(
        [
            largest,
            largest + rng.randint(0, largest),
            largest + usual * together // 6,
            largest + usual * together // 3,
            largest + usual * together * 2 // 3,
            largest + sum(needs),
        ]
    )
    return usable + 1


def _features(engine: EngineSettings, crowd: _Crowd) -> list[str]:
    features = set(crowd.features)
    features.add("async" if engine["async_scheduling"] else "sync")
    features.add(engine["policy"])
    features.add(f"block size {engine['block_size']}")
    features.add("prefix caching" if engine["enable_prefix_caching"] else "no prefix caching")
    features.add("chunked prefill" if engine["enable_chunked_prefill"] else "no chunked prefill")
    full_isl = engine["scheduler_reserve_full_isl"]
    features.add("reserve_full_isl" if full_isl else "no reserve_full_isl")
    if engine["long_prefill_token_threshold"]:
        features.add("long_prefill_token_threshold")
    if engine["watermark"]:
        features.add("watermark")
    return sorted(features)
