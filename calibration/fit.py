"""Fits the step cost to steps of any shape, weighing regions alike, and says how far off it is."""

from collections.abc import Sequence

import numpy as np

from fleetsim.calibration.nnls import non_negative_least_squares
from fleetsim.calibration.parameters import StepCostParameters
from fleetsim.calibration.profile import FitError, RegionError, Validity
from fleetsim.calibration.step_table import REGIONS, Floats, StepTable
from fleetsim.calibration.uncertainty import Uncertainty
from fleetsim.traces.errors import InputError

TOKEN_KNOTS = (
    *(0, 16, 17, 64, 65, 128, 129, 256, 257, 512, 513, 768, 769, 1024, 1025),
    *(1536, 1537, 2048, 2049, 4096, 8192),
)
"""Where the price per token may change. Neighbours such as 256, 257 let it jump: a matrix
multiplication takes whole tiles of tokens, so one token more can cost another wave of tiles."""

SIGNIFICANT_DIGITS = 6
"""Coefficients are rounded to this, so that a fit gives the same file on another machine."""

_ROBUST_ROUNDS = 8
_ROBUST_WIDTH = 3.0
"""Steps further off than so many times the median error count less (Huber's weights)."""


def fit_steps(
    steps: StepTable, knots: Sequence[int] = TOKEN_KNOTS, *, robust: bool = False
) -> StepCostParameters:
    """The coefficients with the least squared relative error, none of them negative.

    Decode, prefill and mixed steps weigh alike, however many there are of each.

    Args:
        steps: what was computed and how long it took.
        knots: token counts, from 0, at which the price per token may change.
        robust: let steps that lie far off (a pause of the host, a busy machine) count less.

    Raises:
        InputError: a duration is not a positive number, or scipy is not installed.
    """
    if not np.all(np.isfinite(steps.seconds) & (steps.seconds > 0)):
        raise InputError("fit: give one positive, finite duration in seconds for each step")
    rows = steps.columns(knots) / steps.seconds[:, None]
    balance = region_weights(steps)
    weights = balance
    solution = np.zeros(rows.shape[1])
    for _ in range(_ROBUST_ROUNDS if robust else 1):
        root = np.sqrt(weights)
        solution = non_negative_least_squares(rows * root[:, None], root)
        error = np.abs(rows @ solution - 1.0)
        width = _ROBUST_WIDTH * max(float(np.median(error)), 1e-6)
        weights = balance * np.minimum(1.0, width / np.maximum(error, 1e-12))
    return to_parameters(solution, knots)


def to_parameters(coefficients: Floats, knots: Sequence[int]) -> StepCostParameters:
    """Coefficients in the order of ``StepTable.columns``, by name and rounded."""
    constant_s, decode_s, prefill_s, *rest = (rounded(value) for value in coefficients.tolist())
    slopes, (per_decode_s, per_kv_s, square_s, context_s, mixed_s) = rest[:-5], rest[-5:]
    return StepCostParameters(
        constant_s=constant_s,
        decode_s=decode_s,
        prefill_s=prefill_s,
        token_knots=tuple(knots),
        token_slopes_s=tuple(slopes),
        per_decode_s=per_decode_s,
        per_decode_kv_token_s=per_kv_s,
        per_prefill_square_s=square_s,
        per_prefill_context_s=context_s,
        per_mixed_kv_token_s=mixed_s,
    )


def predicted_s(parameters: StepCostParameters, steps: StepTable) -> Floats:
    """GPU seconds of each step by the fitted form."""
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
            parameters.per_mixed_kv_token_s,
        ]
    )
    prices: Floats = steps.columns(parameters.token_knots) @ coefficients
    return prices


def score_steps(parameters: StepCostParameters, fitted_steps: int, unseen: StepTable) -> FitError:
    """Relative errors on steps that the fit did not see, together and by region."""
    error = np.abs(predicted_s(parameters, unseen) / unseen.seconds - 1.0)
    by_region = {
        name: _region_error(error[unseen.region(name)])
        for name in REGIONS
        if unseen.region(name).any()
    }
    return FitError(fitted_batches=fitted_steps, unseen=_region_error(error), by_region=by_region)


def fit_uncertainty(
    parameters: StepCostParameters, unseen: StepTable, block_steps: int = 1
) -> Uncertainty:
    """How far the fit is off on steps that it did not see, by kind of step.

    The root mean square of log(taken / predicted) over blocks of so many neighbouring steps, their
    times added up: what varies from step to step averages out in a run, and is not uncertain.
    """
    predicted = predicted_s(parameters, unseen)
    decodes = unseen.region("decode")
    return Uncertainty(
        decode_log_sd=_log_error(unseen.seconds[decodes], predicted[decodes], block_steps),
        prefill_log_sd=_log_error(unseen.seconds[~decodes], predicted[~decodes], block_steps),
        source=f"error of the fit on {len(unseen):,} steps that it did not see, "
        f"{block_steps} together; that of host work and the API server is not in it",
    )


def _log_error(taken_s: Floats, predicted_s: Floats, block_steps: int) -> float:
    if not len(taken_s):
        return 0.0
    starts = np.arange(0, len(taken_s), block_steps)
    taken, predicted = np.add.reduceat(taken_s, starts), np.add.reduceat(predicted_s, starts)
    return round(float(np.sqrt(np.mean(np.log(taken / predicted) ** 2))), 4)


def validity_of(steps: StepTable) -> Validity:
    """The largest steps among these."""
    return Validity(
        max_decodes=max(1, int(steps.n_decodes.max())),
        max_step_tokens=max(1, int(steps.tokens.max())),
        max_context_tokens=max(1, int(steps.longest_context.max())),
        max_kv_tokens=max(1, int(steps.kv_tokens.max())),
    )


def region_weights(steps: StepTable) -> Floats:
    """Weights with which each region has as much say as the others, 1 on average."""
    present = [members for members in map(steps.region, REGIONS) if members.any()]
    weights = np.zeros(len(steps))
    for members in present:
        weights[members] = len(steps) / (len(present) * int(members.sum()))
    return weights


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
