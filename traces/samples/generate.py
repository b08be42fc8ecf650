"""Generate the bundled sample trace: ``python -m fleetsim.traces.samples.generate [FILE]``.

The trace is synthetic. Three tenants share a fleet for ten minutes; their lengths, turns and
pauses follow statistics that were published about production traces, each named where it is used.
In the middle, one tenant's sessions come in a burst that all start with the same system prompt.

Only uniform numbers of a Philox generator are drawn and arrivals lie on whole milliseconds, so the
requests do not depend on the version of a library or the make of a processor.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from fleetsim.traces.schema import Categorical, Trace, TraceMetadata
from fleetsim.traces.streams import stream

SEED = 20231116
SPAN_S = 600.0
BURST_S = (300.0, 345.0)
BLOCK_TOKENS = 64
CONTEXT_TOKENS = 8192
SAMPLE_FILE = Path(__file__).with_name("sample.parquet")

_WARM_UP_S = 3600.0  # so that sessions are in every stage when the trace begins
_REPLY_S_PER_TOKEN = 0.02  # how long a client watched the reply before it began to think


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal by median and mean, held within [low, high]."""

    p50: float
    mean: float
    low: float
    high: float

    def at(self, uniform: float) -> float:
        """Give the quantile of a uniform number."""
        sigma = math.sqrt(2 * math.log(self.mean / self.p50))
        z = NormalDist().inv_cdf(max(uniform, 2.0**-53))
        return min(max(self.p50 * math.exp(sigma * z), self.low), self.high)


@dataclass(frozen=True, slots=True)
class Tenant:
    """How one tenant's sessions look.

    Attributes:
        name: of the tenant.
        sessions_per_s: new sessions in a calm second.
        burst_sessions_per_s: more of them in a second of the burst.
        system_prompts: tokens of each system prompt; a session begins with one of them.
        mean_turns: requests per session, geometrically distributed.
        pause_s: from the end of a reply to the next request.
        first_tokens: what the user adds in the first turn (a question, a document, a file).
        user_tokens: what the user adds in a later turn.
        output_tokens: length of a reply.
        max_tokens: what the client asks for.
    """

    name: str
    sessions_per_s: float
    burst_sessions_per_s: float
    system_prompts: tuple[int, ...]
    mean_turns: float
    pause_s: Lognormal
    first_tokens: Lognormal
    user_tokens: Lognormal
    output_tokens: Lognormal
    max_tokens: int


STATISTICS = (
    "chat and support replies: Azure LLM inference 2023, conversation: p50 129, mean 211, cut at "
    "1000; prompts there: p50 1020, mean 1155",
    "code replies: Azure LLM inference 2023, code: p50 13, mean 28; prompts there: p50 1469, mean "
    "2048",
    "chat sessions: BurstGPT: 4.18 turns, pause p50 124 s",
    "prefix reuse to be of the order of Mooncake's conversations (0.37) and Qwen-Bailian's (0.46 "
    "to 0.66)",
)

_CONVERSATION = Lognormal(p50=129, mean=211, low=1, high=1000)

TENANTS = (
    Tenant(
        name="chat",
        sessions_per_s=1.2,
        burst_sessions_per_s=0.0,
        system_prompts=(320, 192, 448),
        mean_turns=4.18,
        pause_s=Lognormal(p50=124, mean=200, low=2, high=1800),
        first_tokens=Lognormal(p50=160, mean=360, low=4, high=4000),
        user_tokens=Lognormal(p50=40, mean=80, low=2, high=2000),
        output_tokens=_CONVERSATION,
        max_tokens=1024,
    ),
    Tenant(
        name="support",
        sessions_per_s=1.0,
        burst_sessions_per_s=21.0,
        system_prompts=(448,),
        mean_turns=1.8,
        pause_s=Lognormal(p50=40, mean=60, low=2, high=600),
        first_tokens=Lognormal(p50=160, mean=320, low=4, high=2000),
        user_tokens=Lognormal(p50=30, mean=60, low=2, high=1000),
        output_tokens=_CONVERSATION,
        max_tokens=1024,
    ),
    Tenant(
        name="code",
        sessions_per_s=0.6,
        burst_sessions_per_s=0.0,
        system_prompts=(256, 128),
        mean_turns=2.5,
        pause_s=Lognormal(p50=15, mean=30, low=1, high=600),
        first_tokens=Lognormal(p50=1100, mean=1500, low=16, high=7000),
        user_tokens=Lognormal(p50=20, mean=60, low=2, high=1000),
        output_tokens=Lognormal(p50=13, mean=28, low=1, high=256),
        max_tokens=256,
    ),
)


@dataclass(frozen=True, slots=True)
class _Request:
    arrival_ms: int
    session: str
    turn: int
    tenant: Tenant
    system: int
    prompt_tokens: int
    output_tokens: int

    def chain(self) -> list[tuple[str, int]]:
        """Name the full blocks of the prompt by whose text fills them.

        A session's text only grows, so a block that is full stays the same in every later turn. A
        block that lies wholly in the system prompt is the same in all sessions.
        """
        shared = self.tenant.system_prompts[self.system] // BLOCK_TOKENS
        system = f"{self.tenant.name}/system-{self.system}"
        return [
            (system if block < shared else self.session, block)
            for block in range(self.prompt_tokens // BLOCK_TOKENS)
        ]


def _session_starts(tenant: Tenant, seed: int) -> Iterator[float]:
    """Draw a Poisson process, denser in the burst, by thinning."""
    random = stream(seed, f"{tenant.name}/starts")
    peak = tenant.sessions_per_s + tenant.burst_sessions_per_s
    now = -_WARM_UP_S
    while True:
        now -= math.log(1.0 - random.random()) / peak
        if now >= SPAN_S:
            return
        burst = tenant.burst_sessions_per_s * (BURST_S[0] <= now < BURST_S[1])
        if random.random() * peak < tenant.sessions_per_s + burst:
            yield now


def _requests(tenant: Tenant, seed: int) -> Iterator[_Request]:
    random = stream(seed, f"{tenant.name}/turns")
    goes_on = 1.0 - 1.0 / tenant.mean_turns
    for number, now in enumerate(_session_starts(tenant, seed)):
        session = f"{tenant.name}-{number}"
        system = int(random.random() * len(tenant.system_prompts))
        context = tenant.system_prompts[system]
        turn = 0
        while True:
            added = tenant.first_tokens if turn == 0 else tenant.user_tokens
            prompt_tokens = context + round(added.at(random.random()))
            output_tokens = round(tenant.output_tokens.at(random.random()))
            if now >= SPAN_S or prompt_tokens + tenant.max_tokens > CONTEXT_TOKENS:
                break
            if now >= 0:
                arrival_ms = round(now * 1000)
                yield _Request(
                    arrival_ms, session, turn, tenant, system, prompt_tokens, output_tokens
                )
            if random.random() >= goes_on:
                break
            now += output_tokens * _REPLY_S_PER_TOKEN + tenant.pause_s.at(random.random())
            context = prompt_tokens + output_tokens
            turn += 1


def generate(seed: int = SEED) -> Trace:
    """Generate the sample trace; the same seed gives the same trace everywhere."""
    requests = [request for tenant in TENANTS for request in _requests(tenant, seed)]
    requests.sort(key=lambda request: request.arrival_ms)
    numbers: dict[tuple[str, int], int] = {}  # block ids by first appearance
    block_ids: list[int] = []
    block_offsets = [0]
    for request in requests:
        block_ids += [numbers.setdefault(block, len(numbers)) for block in request.chain()]
        block_offsets.append(len(block_ids))
    arrival_ms = np.array([request.arrival_ms for request in requests])
    sessions: dict[str, str] = {}  # numbered by first appearance too
    for request in requests:
        sessions.setdefault(request.session, f"{request.tenant.name}-{len(sessions)}")
    return Trace(
        arrival_s=(arrival_ms - arrival_ms[0]) / 1000.0,
        prompt_tokens=np.array([r.prompt_tokens for r in requests], dtype=np.int32),
        output_tokens=np.array([r.output_tokens for r in requests], dtype=np.int32),
        max_tokens=np.array([r.tenant.max_tokens for r in requests], dtype=np.int32),
        block_offsets=np.array(block_offsets, dtype=np.int64),
        block_ids=np.array(block_ids, dtype=np.uint64),
        session=Categorical.from_values([sessions[r.session] for r in requests]),
        turn=np.array([r.turn for r in requests], dtype=np.int32),
        tenant=Categorical.from_values([r.tenant.name for r in requests]),
        source_row=np.arange(len(requests)),
        metadata=TraceMetadata(
            source_name="fleetsim sample (synthetic)",
            licence="Apache-2.0",
            time_resolution_s=0.001,
            block_tokens=BLOCK_TOKENS,
            prefix_scope="global",
            rows_read=len(requests),
            rows_kept=len(requests),
            transforms=(
                {
                    "name": "generate_sample",
                    "synthetic": True,
                    "seed": seed,
                    "statistics": list(STATISTICS),
                },
            ),
        ),
    )


def main() -> None:
    """Write the sample trace."""
    parser = argparse.ArgumentParser(description="Generate the bundled sample trace.")
    parser.add_argument("file", nargs="?", type=Path, default=SAMPLE_FILE)
    generate().to_parquet(parser.parse_args().file)


if __name__ == "__main__":
    main()
