"""From a trace's columns to requests, under the scenario's rules for what traces leave open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from fleetsim.sim.request import Journey, Request
from fleetsim.sim.scenario import Scenario
from fleetsim.traces import PrefixSegments, Trace

_CHUNK = 8192


class Workload:
    """Hands out the trace's requests, in order, as fresh journeys.

    Args:
        trace: the requests.
        segments: their shared prefixes, or None where the trace tells of none.
        scenario: its workload and gateway sections hold the rules.
        context_tokens: context length of the pool that serves a model, 0 if none does.

    Attributes:
        truncated: prompts cut to fit their context so far (rule `over_length: truncate`).
        cut_outputs: outputs shorter than recorded so far, because of max_tokens or the context.
    """

    def __init__(
        self,
        trace: Trace,
        segments: PrefixSegments | None,
        scenario: Scenario,
        context_tokens: Callable[[str], int],
    ) -> None:
        self._trace = trace
        self._segments = segments
        self._segment_ends = segments.end_token.tolist() if segments is not None else []
        self._rule = scenario.workload.max_tokens
        self._by_length = scenario.workload.stop == "length"
        self._truncates = scenario.workload.over_length == "truncate"
        self._cap = scenario.gateway.max_tokens_cap
        self._context_tokens = context_tokens
        self._contexts: dict[str, int] = {}
        self.truncated = 0
        self.cut_outputs = 0

    def __len__(self) -> int:
        return len(self._trace)

    def reset_counts(self) -> None:
        """Forget what a look ahead through the requests has counted."""
        self.truncated = self.cut_outputs = 0

    def __iter__(self) -> Iterator[Journey]:
        """Every request once, in order of arrival."""
        trace = self._trace
        by_length = self._by_length
        for start in range(0, len(trace), _CHUNK):
            stop = min(start + _CHUNK, len(trace))
            part = slice(start, stop)
            n = stop - start
            rows = zip(
                range(start, stop),
                trace.arrival_s[part].tolist(),
                trace.prompt_tokens[part].tolist(),
                trace.output_tokens[part].tolist(),
                _plain(trace.max_tokens, part, n, 0),
                _labels(trace.tenant, part, n, ""),
                _labels(trace.model, part, n, ""),
                _labels(trace.session, part, n, None),
                _plain(trace.priority, part, n, 0),
                _labels(trace.slo_class, part, n, None),
                self._prefixes(start, stop),
                trace.source_row[part].tolist(),
                strict=True,
            )
            for (
                request_id,
                arrival_s,
                prompt_tokens,
                output_tokens,
                max_tokens,
                tenant,
                model,
                session,
                priority,
                slo_class,
                prefix,
                source_row,
            ) in rows:
                context = self._contexts.get(model)
                if context is None:
                    context = self._contexts[model] = self._context_tokens(model)
                if prompt_tokens >= context > 0 and self._truncates:
                    prompt_tokens = context - 1
                    prefix = self._cut_prefix(prefix, prompt_tokens)
                    self.truncated += 1
                room = context - prompt_tokens
                asked = max_tokens or self._asked(output_tokens, room)
                cap = room if 0 < room < asked else asked
                makes = cap if by_length or cap < output_tokens else output_tokens
                if makes < output_tokens:
                    self.cut_outputs += 1
                yield Journey(
                    Request(
                        request_id,
                        arrival_s,
                        prompt_tokens,
                        asked,
                        tenant,
                        model,
                        session,
                        priority,
                        slo_class,
                        prefix,
                        source_row,
                    ),
                    makes,
                    makes == cap,
                    # A stop token can fall on the very last place, but who knows: without one
                    # recorded, an output that reaches its cap ended there.
                    by_length or makes < output_tokens,
                )

    def _asked(self, output_tokens: int, room: int) -> int:
        """max_tokens of a request that states none."""
        rule = self._rule
        if rule == "output":
            return output_tokens
        asked = max(room, 1) if rule == "context" else rule
        return asked if self._cap is None else min(asked, self._cap)

    def _prefixes(self, start: int, stop: int) -> list[tuple[int, ...]]:
        segments = self._segments
        if segments is None:
            return [()] * (stop - start)
        offsets = segments.offsets[start : stop + 1].tolist()
        ids = segments.segment_ids[offsets[0] : offsets[-1]].tolist()
        base = offsets[0]
        return [tuple(ids[a - base : b - base]) for a, b in itertools.pairwise(offsets)]

    def _cut_prefix(self, prefix: tuple[int, ...], prompt_tokens: int) -> tuple[int, ...]:
        ends = self._segment_ends
        return tuple(segment for segment in prefix if ends[segment] <= prompt_tokens)


def _plain(column: Any, part: slice, n: int, missing: Any) -> list[Any]:
    return [missing] * n if column is None else column[part].tolist()


def _labels(column: Any, part: slice, n: int, missing: Any) -> list[Any]:
    if column is None:
        return [missing] * n
    names = [*column.names, missing]  # code -1 picks the last
    return [names[code] for code in column.codes[part].tolist()]
