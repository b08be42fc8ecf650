"""Which part of the run is measured, and what is kept of it."""

from typing import Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from fleetsim.sim.scenario.section import Duration, PositiveDuration, Section


class Measurement(Section):
    """The measurement window: arrivals in [warm_up_s, end - cool_down_s].

    The end is the last arrival, or the horizon. The run goes on until all have ended.
    """

    warm_up_s: Duration = 0.0
    """Arrivals before this are served but not counted."""
    cool_down_s: Duration = 0.0
    """Arrivals in the last so many seconds are served but not counted."""
    horizon_s: PositiveDuration | None = None
    """Stop the clock here; what has not ended by then is unfinished, and a miss."""

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> Self:
        if self.horizon_s is not None and self.warm_up_s + self.cool_down_s >= self.horizon_s:
            raise PydanticCustomError(
                "window",
                "warm_up_s + cool_down_s ({out} s) leave nothing of horizon_s ({horizon} s); "
                "make the horizon longer",
                {"out": self.warm_up_s + self.cool_down_s, "horizon": self.horizon_s},
            )
        return self


class ResultOptions(Section):
    """What the result folder holds beside the requests."""

    steps: Literal["histogram", "none"] = "histogram"
    """Engine steps as a histogram, or not at all."""
    sample_interval_s: PositiveDuration = 1.0
    """Spacing of the time series (queue, running, KV usage) in simulated time."""
