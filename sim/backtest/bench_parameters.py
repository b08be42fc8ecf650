"""What a fit to bench results may change in a profile, and what the runs can tell apart.

Numbers that the runs cannot tell apart are not fitted apart: they keep the base profile's
proportion. Each number is a factor on what the base profile has, or on a usual size where it has
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetsim.calibration.fit import rounded
from fleetsim.calibration.overheads import ApiServer, HostWorkRecord, host_work_for
from fleetsim.calibration.parameters import HostWork, SchedulingMode, StepCostParameters
from fleetsim.calibration.profile import Profile
from fleetsim.calibration.recipes import API_SERVER, HOST_WORK
from fleetsim.sim.backtest.bench_runs import in_flight
from fleetsim.sim.backtest.measured import Floats, MeasuredRun

STEP_BOUNDS = (0.5, 2.0)
"""Of a factor on GPU times: what is further off is another GPU or model."""

_LEVELS_APART = 1.5
"""Runs tell of different batch sizes if one has so many times the other's requests in flight."""

_PROMPTS_APART = 2.0
_HOST_TIMES = 4.0
_PREFILL_TOKENS = 256
"""Steps of more tokens hold prefills: behind it, a price per token is theirs."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of the fit, a factor.

    Attributes:
        name: ``host``, ``host_base``, ``host_per_seq``, ``api``, ``api_request``, ``api_token``,
            ``decode`` or ``prefill``.
        start: in the base profile.
        low, high: bounds.
        step: that changes the simulation by more than its own unevenness.
    """

    name: str
    start: float
    low: float
    high: float
    step: float


@dataclass(frozen=True, slots=True)
class Split:
    """What the fitted runs can tell, with the reasons in words."""

    batch_levels: int
    prompts_differ: bool
    reasons: tuple[str, ...]


def what_runs_tell(runs: Sequence[MeasuredRun]) -> Split:
    """How many batch sizes the runs have, and whether prompts are short and long."""
    sizes = sorted(in_flight(run) for run in runs)
    levels = [sizes[0]]
    for size in sizes[1:]:
        if size >= _LEVELS_APART * levels[-1]:
            levels.append(size)
    prompts = np.concatenate([run.prompt_tokens for run in runs])
    short, long = (float(q) for q in np.percentile(prompts, [10, 90]))
    differ = long >= _PROMPTS_APART * max(short, 1.0)
    reasons = []
    if len(levels) < 2:
        span = f"{sizes[0]:.3g}" if len(sizes) == 1 else f"{sizes[0]:.3g} to {sizes[-1]:.3g}"
        reasons.append(
            f"the fitted runs have {span} requests in flight on average, one batch size: host work "
            "is one number, and its base and share per sequence keep the base profile's proportion"
        )
    if len(levels) < 2 or not differ:
        why = "one batch size" if len(levels) < 2 else f"prompts of {short:g} to {long:g} tokens"
        reasons.append(
            f"{why}: the API server's time is one number, and its parts per request and per token "
            "keep the base profile's proportion"
        )
    return Split(len(levels), differ and len(levels) > 1, tuple(reasons))


def parameters(
    profile: Profile, mode: SchedulingMode, split: Split, *, decode: bool, prefill: bool
) -> list[Parameter]:
    """What is fitted: overheads, and factors on the steps' GPU time where they are wanted.

    Time per output token tells as many numbers as there are batch sizes, so with factors on
    steps less of the host work is fitted.
    """
    own = profile.host_work_for(mode).work
    base, per_seq = own.base_s + own.residue_s, own.per_seq_s + own.residue_per_seq_s
    numbers = split.batch_levels - int(decode)
    found: list[Parameter] = []
    if numbers >= 2:
        found = [
            _host("host_base", base, profile, mode),
            _host("host_per_seq", per_seq, profile, mode),
        ]
    elif numbers:
        found = [_host("host", base + per_seq, profile, mode)]
    if split.prompts_differ and not prefill:
        steps = (("api_request", 0.2), ("api_token", 0.8))
        found += [Parameter(name, 1.0, 0.0, 20.0, step) for name, step in steps]
    elif split.batch_levels > 1 or not prefill:
        found.append(Parameter("api", 1.0, 0.0, 20.0, 0.2))
    found += [
        Parameter(name, 1.0, *STEP_BOUNDS, 0.05)
        for name, wanted in (("decode", decode), ("prefill", prefill))
        if wanted
    ]
    return found


def changed(
    profile: Profile, mode: SchedulingMode, names: Sequence[str], values: Floats
) -> Profile:
    """The profile with the numbers in it; its words are still the old ones."""
    x = dict(zip(names, (float(f"{value:.4g}") for value in values), strict=True))
    update: dict[str, object] = {}
    if {"host", "host_base", "host_per_seq"} & set(x):
        work = seed(profile, mode, both="host" not in x)
        base, per_seq = (x.get(name, x.get("host", 1.0)) for name in ("host_base", "host_per_seq"))
        record = profile.host_work_for(mode).model_copy(
            update={"work": scaled(work, base, per_seq)}
        )
        update["host_work"] = (*other_modes(profile, mode), record)
    if {"api", "api_request", "api_token"} & set(x):
        api = api_seed(profile, both="api" not in x)
        request, token = (x.get(name, x.get("api", 1.0)) for name in ("api_request", "api_token"))
        update["api_server"] = api.model_copy(
            update={
                "latency_s": rounded(api.latency_s * request),
                "per_request_s": rounded(api.per_request_s * request),
                "per_prompt_token_s": rounded(api.per_prompt_token_s * token),
            }
        )
    if {"decode", "prefill"} & set(x):
        update["step_cost"] = scaled_steps(
            profile.step_cost, x.get("decode", 1.0), x.get("prefill", 1.0)
        )
    return profile.model_copy(update=update)


def seed(profile: Profile, mode: SchedulingMode, *, both: bool) -> HostWork:
    """The host work that is scaled: the profile's, or the shipped profiles' where it has none.

    Args:
        profile, mode: whose.
        both: whether base and share per sequence are scaled by themselves, so that each must be
            there.
    """
    own, usual = profile.host_work_for(mode).work, _usual(mode)
    if not any((own.base_s, own.residue_s, own.per_seq_s, own.residue_per_seq_s)):
        return usual
    if both and not own.base_s + own.residue_s:
        own = replace(own, base_s=usual.base_s, residue_s=usual.residue_s)
    if both and not own.per_seq_s + own.residue_per_seq_s:
        per_seq = usual.per_seq_s, usual.residue_per_seq_s
        own = replace(own, per_seq_s=per_seq[0], residue_per_seq_s=per_seq[1])
    return own


def api_seed(profile: Profile, *, both: bool) -> ApiServer:
    """The API server whose times are scaled: the profile's, or a usual one's where it has none.

    Args:
        profile: whose.
        both: whether the parts per request and per token are scaled by themselves, so that each
            must be there.
    """
    own = profile.api_server
    request, token = own.latency_s + own.per_request_s, own.per_prompt_token_s
    update: dict[str, float] = {}
    if not request and (both or not token):
        update |= {key: getattr(API_SERVER, key) for key in ("latency_s", "per_request_s")}
    if not token and (both or not request):
        update["per_prompt_token_s"] = API_SERVER.per_prompt_token_s
    return own.model_copy(update=update)


def other_modes(profile: Profile, mode: SchedulingMode) -> tuple[HostWorkRecord, ...]:
    """The host work of the scheduling mode that is not fitted."""
    return tuple(record for record in profile.host_work if record.mode != mode)


def _usual(mode: SchedulingMode) -> HostWork:
    return host_work_for(HOST_WORK, mode, None).work


def _host(name: str, own_s: float, profile: Profile, mode: SchedulingMode) -> Parameter:
    """A factor on host work; where the profile has little of it, the bound is a usual one's."""
    work, usual = seed(profile, mode, both=name != "host"), _usual(mode)
    base = (work.base_s + work.residue_s, usual.base_s + usual.residue_s)
    per_seq = (work.per_seq_s + work.residue_per_seq_s, usual.per_seq_s + usual.residue_per_seq_s)
    ratios = [ours and usuals / ours for ours, usuals in (base, per_seq)]
    ratio = {"host": max(ratios), "host_base": ratios[0], "host_per_seq": ratios[1]}[name]
    return Parameter(name, 1.0 if own_s else 0.25, 0.0, _HOST_TIMES * max(1.0, ratio), 0.5)


def scaled(work: HostWork, base: float, per_seq: float) -> HostWork:
    """Host work with one factor on what a step takes, and one on what each sequence takes."""
    return replace(
        work,
        base_s=rounded(work.base_s * base),
        residue_s=rounded(work.residue_s * base),
        per_seq_s=rounded(work.per_seq_s * per_seq),
        residue_per_seq_s=rounded(work.residue_per_seq_s * per_seq),
    )


def scaled_steps(cost: StepCostParameters, decode: float, prefill: float) -> StepCostParameters:
    """GPU time with one factor on what decodes pay, and one on what only prefills do.

    A step's constant and its price per token up to 256 tokens are the decodes'; prefills pay them
    too, so that the price stays one function of the step.
    """
    slopes = zip(cost.token_knots, cost.token_slopes_s, strict=True)
    return replace(
        cost,
        constant_s=rounded(cost.constant_s * decode),
        decode_s=rounded(cost.decode_s * decode),
        per_decode_s=rounded(cost.per_decode_s * decode),
        per_decode_kv_token_s=rounded(cost.per_decode_kv_token_s * decode),
        token_slopes_s=tuple(
            rounded(slope * (decode if knot < _PREFILL_TOKENS else prefill))
            for knot, slope in slopes
        ),
        prefill_s=rounded(cost.prefill_s * prefill),
        per_prefill_square_s=rounded(cost.per_prefill_square_s * prefill),
        per_prefill_context_s=rounded(cost.per_prefill_context_s * prefill),
        per_mixed_kv_token_s=rounded(cost.per_mixed_kv_token_s * prefill),
    )
