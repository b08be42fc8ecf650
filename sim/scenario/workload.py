"""Who asks for what, and when: a recorded trace, or a synthetic stream of requests."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.sim.scenario.section import Section
from fleetsim.sim.scenario.transforms import MOVES_ARRIVALS, Transform

SAMPLE_TRACE = "sample"
"""The value of `workload.trace` that names the bundled synthetic sample."""


_MOST_TOKENS = 2**31 - 1  # what a trace's and a result's columns hold


def _max_tokens_rule(value: Any) -> Any:
    if value in ("context", "output") or (
        isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_TOKENS
    ):
        return value
    raise PydanticCustomError(
        "max_tokens_rule",
        "{value} is not a rule; give 'context', 'output' or a whole number from 1 to {most}",
        {"value": repr(value), "most": _MOST_TOKENS},
    )


MaxTokensRule = Annotated[Literal["context", "output"] | int, BeforeValidator(_max_tokens_rule)]


class Arrivals(Section):
    """An open-loop arrival process: requests come whether or not earlier ones have ended."""

    process: Literal["poisson", "gamma"] = "poisson"
    """Gaps are exponential (poisson) or Gamma distributed (gamma, with a burstiness)."""
    rate_per_s: float = Field(gt=0.0)
    """Mean arrivals per second."""
    burstiness: float = Field(default=1.0, gt=0.0)
    """Shape of the Gamma gaps, as in `vllm bench serve`: 1 is Poisson, below 1 is burstier,
    above 1 is more regular. The coefficient of variation of the gaps is burstiness**-0.5."""

    @model_validator(mode="after")
    def _poisson_has_no_shape(self) -> Self:
        if self.process == "poisson" and self.burstiness != 1.0:
            raise PydanticCustomError(
                "burstiness",
                "a poisson process has burstiness 1, not {value}; set process: gamma",
                {"value": self.burstiness},
            )
        return self


class Synthetic(Section):
    """Requests drawn from the seed, as `vllm bench serve --dataset-name random` does."""

    arrivals: Arrivals | None = None
    """When they come; left out in a closed loop."""
    requests: int = Field(ge=1)
    """How many."""
    prompt_tokens: int = Field(ge=1)
    """Prompt length in tokens; nothing is shared between prompts."""
    output_tokens: int = Field(ge=1)
    """Output length in tokens."""
    random_range_ratio: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Both lengths are uniform in [length * (1 - ratio), length * (1 + ratio)]; 0 is fixed."""


class ClosedLoop(Section):
    """A fixed number of requests in flight: the next begins when one ends.

    A closed loop slows down with the fleet, so it never builds a queue and cannot find the
    rate at which the fleet falls over; it is here for comparison with tools that work so.
    """

    concurrency: int = Field(ge=1)
    """Requests in flight at any time, until none are left to send."""


class Workload(Section):
    """The requests: exactly one of `trace` and `synthetic`."""

    trace: str | None = Field(default=None, min_length=1)
    """A trace file, relative to the scenario file; `sample` is the bundled synthetic one."""
    format: str | None = Field(default=None, min_length=1)
    """The trace's format; left out, it is told from the content."""
    synthetic: Synthetic | None = None
    """Requests made up from the seed instead of a trace."""
    time_scale: float = Field(default=1.0, gt=0.0)
    """Divides a trace's arrival times. 4 squeezes an hour into 15 minutes: four times the rate,
    and also turns closer together, bursts shorter, reuse of prefixes denser."""
    head: int | None = Field(default=None, ge=1)
    """Only the first so many requests."""
    transforms: Annotated[tuple[Transform, ...], Field(strict=False)] = ()
    """What else is done to the requests, in order, after `head` and `time_scale`."""
    closed_loop: ClosedLoop | None = None
    """Ignore arrival times and keep a fixed number of requests in flight."""
    max_tokens: MaxTokensRule = "context"
    """What a request asks for where the trace states no max_tokens: all that the context still
    holds (`context`, as vLLM does), exactly its output (`output`, as benchmarks do), or a
    constant."""
    stop: Literal["eos", "length"] = "eos"
    """Where output ends: at the recorded length, or max_tokens if that is shorter (eos); or
    always at max_tokens (length, vLLM's ignore_eos)."""
    ignore_model: bool = False
    """Send every request to the default pool, whatever model the trace names: to replay a trace
    of other people's models."""
    over_length: Literal["reject", "truncate"] = "reject"
    """A prompt that leaves no room in the model's context: refuse it, or cut it to fit."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.trace is None) == (self.synthetic is None):
            which = "both are here" if self.trace is not None else "neither is here"
            raise PydanticCustomError(
                "workload_source",
                "needs exactly one of 'trace' and 'synthetic'; {which}",
                {"which": which},
            )
        if self.synthetic is not None:
            self._synthetic_is_whole(self.synthetic)
        if self.closed_loop is not None and self.time_scale != 1.0:
            raise PydanticCustomError(
                "closed_loop",
                "time_scale moves arrival times and a closed loop has none; leave one of them out",
            )
        moves = [step.name for step in self.transforms if step.name in MOVES_ARRIVALS]
        if self.closed_loop is not None and moves:
            raise PydanticCustomError(
                "closed_loop",
                "transforms: {name} moves arrival times and a closed loop has none; leave one of "
                "them out",
                {"name": moves[0]},
            )
        return self

    def _synthetic_is_whole(self, synthetic: Synthetic) -> None:
        if self.closed_loop is None and synthetic.arrivals is None:
            raise PydanticCustomError(
                "arrivals",
                "synthetic needs 'arrivals' (process, rate_per_s), or the workload a 'closed_loop'",
            )
        if self.closed_loop is not None and synthetic.arrivals is not None:
            raise PydanticCustomError(
                "arrivals",
                "a closed loop has no arrival process; leave out synthetic.arrivals "
                "(--set workload.synthetic.arrivals=null) or closed_loop",
            )
        if self.time_scale != 1.0:
            raise PydanticCustomError(
                "time_scale",
                "time_scale compresses a recorded trace; for synthetic requests set "
                "synthetic.arrivals.rate_per_s",
            )
        if self.format is not None:
            raise PydanticCustomError(
                "format", "format belongs to a trace and there is none; leave it out"
            )
