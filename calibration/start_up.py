"""How long a replica takes from the start of its process until it is ready, phase by phase."""

from typing import Self

from pydantic import model_validator

from fleetsim.calibration.section import Section


class Spread(Section):
    """A number that differs from start to start: between ``low`` and ``high``, all alike."""

    low: float
    high: float
    source: str

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"low {self.low:g} and high {self.high:g}: must rise from at least 0")
        return self

    def at(self, share: float) -> float:
        """The number a share of the way up; a uniform share gives a uniform number."""
        return self.low + (self.high - self.low) * share


class StartUp(Section):
    """Phases of a start, in their order; ``_s`` are seconds.

    Weights take the bytes that one node reads over ``weights_bytes_per_s``. A start with the
    compile cache of an earlier one takes ``compile_cached_s`` and no ``warm_up_s``.
    """

    import_s: Spread
    """Starting Python and importing the engine, up to the first byte of the weights."""
    weights_bytes_per_s: Spread
    """Of vLLM's default loader, from the storage of a node."""
    profile_s: Spread
    """The profiling run, the KV cache and what else initialises the engine."""
    compile_s: Spread
    """torch.compile without a cache."""
    compile_cached_s: Spread
    """torch.compile with the cache of an earlier start."""
    warm_up_s: Spread
    """Kernels that are compiled when first used (DeepGEMM, FlashInfer); none for most models."""
    graph_capture_s: Spread
    """Capturing CUDA graphs."""

    def seconds(self, weights_bytes: int, cached: bool, share: float = 0.5) -> float:
        """The whole start, every phase a share of the way from its shortest to its longest."""
        compiled = self.compile_cached_s if cached else self.compile_s
        phases = [self.import_s, self.profile_s, compiled, self.graph_capture_s]
        if not cached:
            phases.append(self.warm_up_s)
        loading_s = weights_bytes / self.weights_bytes_per_s.at(1.0 - share)
        return loading_s + sum(phase.at(share) for phase in phases)
