"""The diagnostics of a fit to steps: measured against fitted, and residuals by region."""

import numpy as np
from matplotlib.figure import Figure

from fleetsim.calibration.fit import predicted_s
from fleetsim.calibration.from_steps import StepFit
from fleetsim.calibration.step_table import REGIONS


def fit_figure(fit: StepFit) -> Figure:
    """Four panels, over the steps that the fit did not see."""
    steps = fit.steps.take(fit.unseen)
    fitted_s = predicted_s(fit.profile.step_cost, steps)
    error = (fitted_s / steps.seconds - 1.0) * 100.0
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(f"{fit.profile.name}: {len(steps):,} steps that the fit did not see")
    axes = figure.subplots(2, 2)
    agreement, boxes, by_tokens, by_kv = axes.flat
    low, high = steps.seconds.min() * 1e3, steps.seconds.max() * 1e3
    agreement.loglog([low, high], [low, high], color="0.6", linewidth=1)
    shown = [name for name in REGIONS if steps.region(name).any()]
    for name in shown:
        members = steps.region(name)
        agreement.loglog(steps.seconds[members] * 1e3, fitted_s[members] * 1e3, ".", label=name)
        by_tokens.plot(steps.tokens[members], error[members], ".", label=name)
        by_kv.plot(steps.kv_tokens[members], error[members], ".", label=name)
    agreement.set_xlabel("measured step (ms)")
    agreement.set_ylabel("fitted step (ms)")
    agreement.legend()
    boxes.boxplot(
        [error[steps.region(name)] for name in shown], whis=(5, 95), flierprops={"markersize": 3}
    )
    boxes.set_xticks(np.arange(1, len(shown) + 1), shown)
    boxes.set_ylabel("fitted less measured (%)")
    by_tokens.set_xlabel("tokens in the step")
    by_kv.set_xlabel("KV tokens of the decodes")
    for ax in (boxes, by_tokens, by_kv):
        ax.axhline(0.0, color="0.6", linewidth=1)
    widest = 1.05 * max(1.0, float(np.abs(error).max()))  # no step is left out of the picture
    for ax in (by_tokens, by_kv):
        ax.set_ylabel("fitted less measured (%)")
        ax.set_ylim(-widest, widest)
    return figure
