"""From a trace's columns to requests, under the scenario's rules for what traces leave open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetsim.sim.request import Journey, Request
from fleetsim.sim.scenario import Scenario
from fleetsim.traces import PrefixSegments, Trace
from fleetsim.traces.schema import Categorical

_CHUNK = 1024

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Lengths:
    """What the rules make of the recorded lengths; arrays of one entry per request.

    Attributes:
        prompt_tokens, max_tokens: as they are asked for.
        makes: output tokens that the engine generates.
        capped: whether they are as many as may be.
        cut: whether the output is shorter than recorded. What has no room is refused, and has no
            output to cut.
        truncated: whether the prompt is.
    """

    prompt_tokens: Ints
    max_tokens: Ints
    makes: Ints
    capped: Mask
    cut: Mask
    truncated: Mask


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
        self._tells_outputs = segments is not None and len(segments.output_segment_ids) > 0
        self._segment_ends = segments.end_token.tolist() if segments is not None else []
        self._rule = scenario.workload.max_tokens
        self._by_length = scenario.workload.stop == "length"
        self._truncates = scenario.workload.over_length == "truncate"
        self._cap = scenario.gateway.max_tokens_cap
        self._contexts = _contexts(trace.model, context_tokens)
        self._whole: _Lengths | None = None
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
        for start in range(0, len(trace), _CHUNK):
            stop = min(start + _CHUNK, len(trace))
            part = slice(start, stop)
            n = stop - start
            lengths = self._lengths(part)
            rows = zip(
                range(start, stop),
                trace.arrival_s[part].tolist(),
                lengths.prompt_tokens.tolist(),
                lengths.max_tokens.tolist(),
                _labels(trace.tenant, part, n, ""),
                _labels(trace.model, part, n, ""),
                _labels(trace.session, part, n, None),
                [0] * n if trace.priority is None else trace.priority[part].tolist(),
                _labels(trace.slo_class, part, n, None),
                self._prefixes(start, stop),
                trace.source_row[part].tolist(),
                _labels(trace.adapter, part, n, ""),
                strict=True,
            )
            outputs = zip(
                lengths.makes.tolist(),
                lengths.capped.tolist(),
                lengths.cut.tolist(),
                lengths.truncated.tolist(),
                strict=True,
            )
            for row, output in zip(rows, outputs, strict=True):
                yield self._journey(Request(*row), *output)

    def journey(self, row: int) -> Journey:
        """One request by its number, for who does not take them in order of arrival."""
        trace = self._trace
        lengths = self._whole
        if lengths is None:
            lengths = self._whole = self._lengths(slice(None))
        request = Request(
            row,
            float(trace.arrival_s[row]),
            int(lengths.prompt_tokens[row]),
            int(lengths.max_tokens[row]),
            _label(trace.tenant, row) or "",
            _label(trace.model, row) or "",
            _label(trace.session, row),
            0 if trace.priority is None else int(trace.priority[row]),
            _label(trace.slo_class, row),
            self._prefixes(row, row + 1)[0],
            int(trace.source_row[row]),
            _label(trace.adapter, row) or "",
        )
        return self._journey(
            request,
            int(lengths.makes[row]),
            bool(lengths.capped[row]),
            bool(lengths.cut[row]),
            bool(lengths.truncated[row]),
        )

    def _journey(
        self, request: Request, makes: int, capped: bool, cut: bool, truncated: bool
    ) -> Journey:
        if truncated:
            request.prefix = self._cut_prefix(request.prefix, request.prompt_tokens)
            self.truncated += 1
        if cut:
            self.cut_outputs += 1
        # A stop token can fall on the very last place, but who knows: without one recorded, an
        # output that reaches its cap ended there.
        journey = Journey(request, makes, capped, self._by_length or cut)
        if self._tells_outputs and not truncated:
            journey.output_segments = self._outputs(request.request_id)
        return journey

    def _lengths(self, part: slice) -> _Lengths:
        trace = self._trace
        prompt_tokens = trace.prompt_tokens[part].astype(np.int64)
        if trace.model is None:
            context = np.full_like(prompt_tokens, self._contexts[-1])
        else:
            context = self._contexts[trace.model.codes[part]]
        too_long = (prompt_tokens >= context) & (context > 0) & self._truncates
        prompt_tokens[too_long] = context[too_long] - 1
        room = context - prompt_tokens
        output_tokens = trace.output_tokens[part].astype(np.int64)
        max_tokens = self._max_tokens(part, output_tokens, room)
        cap = np.where((room > 0) & (room < max_tokens), room, max_tokens)
        makes = cap if self._by_length else np.minimum(output_tokens, cap)
        cut = (makes < output_tokens) & (room > 0)
        return _Lengths(prompt_tokens, max_tokens, makes, makes == cap, cut, too_long)

    def _max_tokens(self, part: slice, output_tokens: Ints, room: Ints) -> Ints:
        """max_tokens of each request: as recorded, or by the rule where it states none."""
        rule = self._rule
        if rule == "output":
            asked = output_tokens
        else:
            asked = np.maximum(room, 1) if rule == "context" else np.full_like(room, rule)
            if self._cap is not None:
                asked = np.minimum(asked, self._cap)
        stated = self._trace.max_tokens
        if stated is None:
            return asked
        return np.where(stated[part] > 0, stated[part], asked)

    def _prefixes(self, start: int, stop: int) -> list[tuple[int, ...]]:
        segments = self._segments
        if segments is None:
            return [()] * (stop - start)
        offsets = segments.offsets[start : stop + 1].tolist()
        ids = segments.segment_ids[offsets[0] : offsets[-1]].tolist()
        base = offsets[0]
        return [tuple(ids[a - base : b - base]) for a, b in itertools.pairwise(offsets)]

    def _outputs(self, row: int) -> tuple[int, ...]:
        segments = self._segments
        assert segments is not None
        begin, end = segments.output_offsets[row : row + 2].tolist()
        return tuple(segments.output_segment_ids[begin:end].tolist())

    def _cut_prefix(self, prefix: tuple[int, ...], prompt_tokens: int) -> tuple[int, ...]:
        ends = self._segment_ends
        return tuple(segment for segment in prefix if ends[segment] <= prompt_tokens)


def _contexts(models: Categorical | None, context_tokens: Callable[[str], int]) -> Ints:
    """Context length of the pool of each model, by code; the last one is for none named."""
    names = () if models is None else models.names
    return np.array([context_tokens(name) for name in (*names, "")], np.int64)


def _label(column: Categorical | None, row: int) -> str | None:
    return None if column is None else column[row]


def _labels(column: Any, part: slice, n: int, missing: Any) -> list[Any]:
    if column is None:
        return [missing] * n
    names = [*column.names, missing]  # code -1 picks the last
    return [names[code] for code in column.codes[part].tolist()]
