"""What is done to a trace before it is replayed: `workload.transforms`, a list in order."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.sim.scenario.section import Duration, PositiveDuration, Section
from fleetsim.traces import transforms as functions
from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Trace

By = Literal["session", "request"]
Positive = Annotated[float, Field(gt=0.0)]
AtLeast0 = Annotated[float, Field(ge=0.0)]
Point = Annotated[tuple[Duration, AtLeast0], Field(strict=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Window(Section):
    """Only the requests of a part of the time."""

    from_s: Duration = 0.0
    """Where it begins, from the trace's start."""
    to_s: PositiveDuration
    """Where it ends; a request that arrives right then is outside."""


class Head(Section):
    """Only the first requests."""

    requests: int = Field(ge=1)
    """How many."""


class TimeScale(Section):
    """Compressed time: a higher rate, but not more users."""

    factor: Positive
    """Divides arrival and think times."""


class Drawn(Section):
    """A transform that draws at random."""

    seed: int | None = Field(default=None, ge=0, lt=2**64)
    """Of this transform's draws; left out, the scenario's."""


class Superpose(Drawn):
    """Copies of the trace, shifted in a circle: more sessions at the original tempo."""

    factor: float = Field(ge=1.0)
    """How many copies; 2.5 is two whole ones, and half of the sessions of a third."""


class Thin(Drawn):
    """Fewer sessions."""

    share: Annotated[float, Field(gt=0.0, le=1.0)]
    """Probability with which each is kept."""
    by: By = "session"
    """Whether whole sessions are drawn, or single requests, which breaks the reuse of prefixes."""


class Repeat(Section):
    """The trace end to end with itself, other sessions each time."""

    times: int = Field(ge=1)
    """How often it runs."""


class Dequantize(Drawn):
    """Arrivals that were stamped in batches, spread over the time that a stamp stands for."""

    tick_s: PositiveDuration | None = None
    """That time; left out, the grid found in the trace."""


class Reburst(Drawn):
    """Arrivals drawn anew, of a given burstiness, under the trace's own rate."""

    cv: Positive
    """Coefficient of variation of the gaps at a constant rate; 1 is Poisson, more is burstier."""
    bin_s: PositiveDuration = 60.0
    """Bins in which the trace's rate is measured."""


class Day(Section):
    """A rate that rises and falls once a period."""

    peak_to_trough: float = Field(default=10.0, ge=1.0)
    """Highest rate over lowest."""
    shape: Literal["sinusoid", "log_sinusoid"] = "sinusoid"
    """The second one has the sharper peak."""
    period_s: PositiveDuration = 86400.0
    """Of one rise and fall."""
    peak_at_s: Duration = 43200.0
    """Time of a peak, from the trace's start."""


class Week(Section):
    """A factor for each day of the week."""

    factors: Annotated[tuple[AtLeast0, ...], Field(strict=False)]
    """Seven, from Monday to Sunday."""
    first_day: int = Field(default=0, ge=0, le=6)
    """The day on which the trace begins, at midnight: 0 is Monday."""
    day_s: PositiveDuration = 86400.0
    """Length of a day."""


class FlashCrowd(Section):
    """A rate that jumps, stays, and dies down."""

    at_s: Duration
    """When it begins to rise."""
    factor: Positive = 5.0
    """How many times the usual rate, at its height."""
    ramp_s: Duration = 30.0
    """From the usual rate to the height."""
    hold_s: Duration = 300.0
    """At the height."""
    decay_s: Duration = 300.0
    """Time constant of the way back; 0 ends at once."""


class Modulate(Section):
    """Arrivals bent to a curve, as many in the same time; several curves multiply."""

    day: Day | None = None
    """A rate that rises and falls once a period."""
    week: Week | None = None
    """A factor for each day of the week."""
    flash_crowd: FlashCrowd | None = None
    """A rate that jumps, stays, and dies down."""
    points: Annotated[tuple[Point, ...], Field(strict=False, min_length=1)] | None = None
    """A curve through points [time, relative rate], straight between them."""
    bin_s: PositiveDuration = 600.0
    """Bins in which the trace's own rate is measured; fluctuation within a bin stays."""

    @model_validator(mode="after")
    def _has_a_curve(self) -> Self:
        try:
            curves = self.curves()
        except InputError as error:
            raise PydanticCustomError("curve", "{error}", {"error": str(error)}) from None
        if not curves:
            raise PydanticCustomError(
                "curve", "needs a curve: one of 'day', 'week', 'flash_crowd' and 'points', or more"
            )
        return self

    def curves(self) -> tuple[functions.Curve, ...]:
        """Make the curves that are given."""
        makers: dict[str, Callable[..., functions.Curve]] = {
            "day": functions.Day,
            "week": functions.Week,
            "flash_crowd": functions.FlashCrowd,
        }
        given = [(make, getattr(self, name)) for name, make in makers.items()]
        curves = [make(**dict(section)) for make, section in given if section is not None]
        return (*curves, *([functions.Points(self.points)] if self.points else []))


class LengthMap(Section):
    """Longer or shorter prompts or outputs."""

    column: Literal["prompt_tokens", "output_tokens"]
    """Which of them."""
    scale: Positive = 1.0
    """Every length times this, rounded."""
    shortest: int = Field(default=1, ge=1)
    """Lengths below become this."""
    longest: int | None = Field(default=None, ge=1)
    """Lengths above become this; left out, no bound."""


class MaxTokens(Drawn):
    """What clients ask for at most, in place of what the trace says."""

    tokens: int | None = Field(default=None, ge=1)
    """The same for all; or else output_factor."""
    output_factor: float | None = Field(default=None, ge=1.0)
    """The true output times this, rounded up; or else tokens."""
    stop_by_length: Share = 0.0
    """Share of the requests that ask for exactly their output, and so stop by length."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.tokens is None) == (self.output_factor is None):
            raise PydanticCustomError(
                "max_tokens", "needs exactly one of 'tokens' and 'output_factor'"
            )
        return self


class Zipf(Section):
    """Weights that fall as rank**-exponent."""

    count: int = Field(ge=1)
    """How many labels: the column's name with -1, -2, ..."""
    exponent: float = Field(default=1.0, ge=0.0)
    """0 makes all alike."""


class Assign(Drawn):
    """Labels by lot."""

    column: Literal["tenant", "slo_class", "adapter", "model"]
    """Which label; what the trace says of it is replaced."""
    weights: dict[str, AtLeast0] | None = None
    """Label to weight, of any sum; the label "" is none. Or else zipf."""
    zipf: Zipf | None = None
    """Weights by Zipf's law; or else weights."""
    by: By = "session"
    """What gets one label."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.weights is None) == (self.zipf is None):
            raise PydanticCustomError("assign", "needs exactly one of 'weights' and 'zipf'")
        return self


class AttachSessions(Drawn):
    """Sessions begin as a renewal process, each as it was recorded."""

    sessions_per_s: Positive
    """Mean rate at which they begin."""
    cv: Positive = 1.0
    """Coefficient of variation of the gaps between them; 1 is Poisson."""


class BlockBootstrap(Drawn):
    """Another trace that might as well have been recorded: blocks of time, drawn anew."""

    block_s: PositiveDuration = 600.0
    """Length of a block; sessions come along whole."""


MOVES_ARRIVALS = ("time_scale", "dequantize", "reburst", "modulate", "attach_sessions")
"""Transforms that do nothing else, which is nothing in a closed loop."""


class Transform(Section):
    """One transform: its name, and its parameters as a mapping."""

    window: Window | None = None
    """Only the requests of a part of the time."""
    head: Head | None = None
    """Only the first requests."""
    time_scale: TimeScale | None = None
    """Compressed time: a higher rate, but not more users."""
    superpose: Superpose | None = None
    """More sessions at the original tempo."""
    thin: Thin | None = None
    """Fewer sessions."""
    repeat: Repeat | None = None
    """The trace end to end with itself."""
    dequantize: Dequantize | None = None
    """Batched time stamps, spread."""
    reburst: Reburst | None = None
    """Arrivals of a given burstiness."""
    modulate: Modulate | None = None
    """Arrivals bent to a curve."""
    length_map: LengthMap | None = None
    """Longer or shorter prompts or outputs."""
    max_tokens: MaxTokens | None = None
    """What clients ask for at most."""
    assign: Assign | None = None
    """Labels by lot."""
    attach_sessions: AttachSessions | None = None
    """When sessions begin."""
    block_bootstrap: BlockBootstrap | None = None
    """Blocks of time, drawn anew."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            names = ", ".join(given) if given else "none"
            raise PydanticCustomError(
                "transform",
                "has {names}; must have exactly one transform, and its parameters below it",
                {"names": names},
            )
        return self

    @model_serializer(mode="wrap")
    def _without_the_others(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value is not None}

    @property
    def name(self) -> str:
        """Which transform it is."""
        return next(n for n in type(self).model_fields if getattr(self, n) is not None)

    def apply(self, trace: Trace, seed: int) -> Trace:
        """Transform a trace.

        Args:
            trace: stays as it is.
            seed: of the draws, where the transform states none.

        Raises:
            InputError: parameters that do not fit the trace.
        """
        section = getattr(self, self.name)
        parameters: dict[str, Any] = dict(section)
        if isinstance(section, Drawn) and section.seed is None:
            parameters["seed"] = seed
        if isinstance(section, Head):
            return functions.head(trace, section.requests)
        if isinstance(section, Modulate):
            return functions.modulate(trace, section.curves(), bin_s=section.bin_s)
        if isinstance(section, MaxTokens):
            return functions.limit_outputs(trace, **parameters)
        if isinstance(section, Assign):
            zipf = parameters.pop("zipf")
            if zipf is not None:
                parameters["weights"] = functions.zipf_weights(section.column, **dict(zipf))
        made: Trace = getattr(functions, self.name)(trace, **parameters)
        return made
