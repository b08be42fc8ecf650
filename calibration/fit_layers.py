"""Fits the step cost to a layer profile, in two parts that the profile tells apart.

The dense layers depend on a step's tokens alone: a curve. Attention and the head depend on the
rest. Fitted at once, a prefill's square would hide in the curve, since a measured step has one
prefill chunk, and steps of several chunks would come out too long.
"""

import numpy as np

from fleetsim.calibration.fit import region_weights, to_parameters
from fleetsim.calibration.layer_steps import dense_us
from fleetsim.calibration.layer_tables import LayerTables
from fleetsim.calibration.nnls import non_negative_least_squares
from fleetsim.calibration.parameters import StepCostParameters
from fleetsim.calibration.step_table import Floats, StepTable

_TILE = 128
_SMALL = (0, 16, 17, 32, 33, 64, 65, 96, 97)


def layer_knots(max_tokens: int) -> tuple[int, ...]:
    """Where the price per token may change: around small batches and every tile of tokens.

    Neighbours such as 256, 257 let it jump there.
    """
    tiles = [k for tile in range(_TILE, max_tokens, _TILE) for k in (tile, tile + 1)]
    return tuple(k for k in (*_SMALL, *tiles) if k < max_tokens)


def fit_layers(tables: LayerTables, num_layers: int, steps: StepTable) -> StepCostParameters:
    """The coefficients with the least squared relative error, none of them negative.

    Args:
        tables: the layer profile.
        num_layers: decoder layers of the model.
        steps: of these attention shapes; decode, prefill and mixed ones weigh alike.
    """
    knots = layer_knots(tables.max_tokens)
    curve = _dense_curve(tables, num_layers, knots)
    whole = steps.columns(knots)
    n = len(knots)
    # less what the layers took, not what the curve says: its error is not attention's
    rest_s = steps.seconds - dense_us(tables, num_layers, steps.tokens) * 1e-6
    # the three constants, one slope for all tokens, and the terms of attention
    terms = np.column_stack([whole[:, :3], steps.tokens, whole[:, n + 3 :]])
    weights = np.sqrt(region_weights(steps)) / steps.seconds
    found = non_negative_least_squares(terms * weights[:, None], rest_s * weights)
    coefficients = np.concatenate([curve, found[4:]])
    coefficients[:3] += found[:3]
    coefficients[3 : n + 3] += found[3]
    return to_parameters(coefficients, knots)


def _dense_curve(tables: LayerTables, num_layers: int, knots: tuple[int, ...]) -> Floats:
    """Constant, two zeros for the constants of decodes and prefills, and the token slopes."""
    # at every knot's scale alike, and at both sides of a tile's edge
    tokens = np.unique(
        np.concatenate(
            [np.arange(1, 513), np.arange(512, tables.max_tokens + 1, 16), np.array(knots[1:])]
        )
    ).astype(np.float64)
    tokens = tokens[tokens <= tables.max_tokens]
    seconds = dense_us(tables, num_layers, tokens) * 1e-6
    ends = (*knots[1:], np.inf)
    segments = [np.clip(tokens - k, 0, end - k) for k, end in zip(knots, ends, strict=True)]
    rows = np.stack([np.ones_like(tokens), *segments], axis=1) / seconds[:, None]
    found = non_negative_least_squares(rows, np.ones(len(tokens)))
    return np.concatenate([found[:1], np.zeros(2), found[1:]])
