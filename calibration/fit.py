"""Fits the step cost to priced batches, and says how far off it is on batches it did not see."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt

from fleetsim.calibration.parameters import StepCostParameters
from fleetsim.calibration.profile import FitError, RegionError
from fleetsim.traces.errors import InputError

Floats = npt.NDArray[np.float64]

TOKEN_KNOTS = (
    *(0, 16, 17, 64, 65, 128, 129, 256, 257, 512, 513, 768, 769, 1024, 1025),
    *(1536, 1537, 2048, 2049, 4096, 8192),
)
"""Where the price per token may change. Neighbours such as 256, 257 let it jump: a matrix
multiplication takes whole tiles of tokens, so one token more can cost another wave of tiles."""

MOE_TOKEN_KNOTS = tuple(sorted({*TOKEN_KNOTS, 8, 32, 96, 160, 192, 320, 384, 640, 3072, 6144}))
"""More of them for mixtures of experts: the weights that a step reads grow with its tokens until
every expert has one."""

SIGNIFICANT_DIGITS = 6
"""Coefficients are rounded to this, so that a fit gives the same file on another machine."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step to be priced: like decodes, and like prefill chunks."""

    n_decodes: int
    kv_tokens: int
    """Computed tokens of all decodes together, before the step."""
    n_prefills: int
    chunk_tokens: int
    context_tokens: int
    """Computed tokens of each prefilling sequence, before its chunk."""

    @property
    def tokens(self) -> int:
        """Tokens that the step computes."""
        return self.n_decodes + self.n_prefills * self.chunk_tokens

    @property
    def region(self) -> str:
        """``decode``, ``prefill`` or ``mixed``."""
        if not self.n_prefills:
            return "decode"
        return "mixed" if self.n_decodes else "prefill"


def columns(batches: Sequence[StepBatch], knots: Sequence[int] = TOKEN_KNOTS) -> Floats:
    """One row per batch, one column per coefficient of :class:`StepCostParameters`, in order."""
    n_d, kv, n_p, c, p = np.array(
        [
            (b.n_decodes, b.kv_tokens, b.n_prefills, b.chunk_tokens, b.context_tokens)
            for b in batches
        ],
        dtype=np.float64,
    ).T
    tokens = n_d + n_p * c
    ends = (*knots[1:], np.inf)
    segments = [np.clip(tokens - k, 0, end - k) for k, end in zip(knots, ends, strict=True)]
    return np.stack(
        [
            np.ones_like(tokens),
            np.sign(n_d),
            np.sign(n_p),
            *segments,
            n_d,
            kv,
            n_p * c * c / 2,
            n_p * c * p,
        ],
        axis=1,
    )


def predict_s(parameters: StepCostParameters, batches: Sequence[StepBatch]) -> Floats:
    """GPU seconds of each batch, vectorised for fitting and scoring."""
    coefficients = np.array(
        [
            parameters.constant_s,
            parameters.decode_s,
            parameters.prefill_s,
            *parameters.token_slopes_s,
            parameters.per_decode_s,
            parameters.per_decode_kv_token_s,
            parameters.per_prefill_square_s,
            parameters.per_prefill_context_s,
        ]
    )
    prices: Floats = columns(batches, parameters.token_knots) @ coefficients
    return prices


def fit_step_cost(
    batches: Sequence[StepBatch], prices_s: Floats, knots: Sequence[int] = TOKEN_KNOTS
) -> StepCostParameters:
    """The coefficients with the least squared relative error, none of them negative.

    Args:
        batches: what was computed.
        prices_s: how long it took, in seconds.
        knots: where the price per token may change.

    Raises:
        InputError: a price is not a positive number, or scipy is not installed.
    """
    if len(batches) != len(prices_s) or not np.all(np.isfinite(prices_s) & (prices_s > 0)):
        raise InputError("fit: give one positive, finite price in seconds for each batch")
    rows = columns(batches, knots) / prices_s[:, None]
    # Equal column norms keep the solver's tolerance meaningful for seconds a token and a step.
    norms = np.linalg.norm(rows, axis=0)
    norms[norms == 0] = 1.0
    solution, _ = _optimize().nnls(rows / norms, np.ones(len(batches)), maxiter=100 * rows.shape[1])
    coefficients = [rounded(value) for value in (solution / norms).tolist()]
    n = len(knots)
    constant_s, decode_s, prefill_s = coefficients[:3]
    per_decode_s, per_kv_s, square_s, context_s = coefficients[3 + n :]
    return StepCostParameters(
        constant_s=constant_s,
        decode_s=decode_s,
        prefill_s=prefill_s,
        token_knots=tuple(knots),
        token_slopes_s=tuple(coefficients[3 : 3 + n]),
        per_decode_s=per_decode_s,
        per_decode_kv_token_s=per_kv_s,
        per_prefill_square_s=square_s,
        per_prefill_context_s=context_s,
    )


def score(
    parameters: StepCostParameters,
    fitted_batches: int,
    unseen: Sequence[StepBatch],
    prices_s: Floats,
) -> FitError:
    """The error on ``unseen`` batches, priced by the source of the fit at ``prices_s``."""
    relative = np.abs(predict_s(parameters, unseen) / prices_s - 1.0)
    regions = np.array([batch.region for batch in unseen])
    return FitError(
        fitted_batches=fitted_batches,
        unseen=_region_error(relative),
        by_region={
            str(region): _region_error(relative[regions == region]) for region in np.unique(regions)
        },
    )


def rounded(value: float) -> float:
    """The value at :data:`SIGNIFICANT_DIGITS`."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _region_error(relative: Floats) -> RegionError:
    return RegionError(
        batches=len(relative),
        median=round(float(np.median(relative)), 4),
        p95=round(float(np.percentile(relative, 95)), 4),
        worst=round(float(relative.max()), 4),
    )


def _optimize() -> ModuleType:
    try:
        import scipy.optimize
    except ImportError as error:
        raise InputError(
            "scipy is not installed; fitting needs the extra: pip install 'fleetsim[aic]'"
        ) from error
    return scipy.optimize  # type: ignore[no-any-return]
