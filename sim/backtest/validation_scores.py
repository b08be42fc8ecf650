"""How far off the simulated runs are, group by group, and whether that is what was aimed at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fleetsim.calibration.silicon import FITTED_BELOW_CONCURRENCY
from fleetsim.sim.backtest.validation import Outcome

SHORT_PROMPT_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class ErrorScore:
    """Relative errors of one time over some runs.

    Attributes:
        median, p95: of their absolute values.
        bias, spread: mean and standard deviation of log(measured / simulated).
    """

    median: float
    p95: float
    bias: float
    spread: float


@dataclass(frozen=True, slots=True)
class GroupScore:
    """One model's runs, fitted to or held out."""

    name: str
    fitted: bool
    runs: int
    tpot: ErrorScore
    ttft: ErrorScore
    tokens_per_s: ErrorScore


@dataclass(frozen=True, slots=True)
class Target:
    """What was aimed at beforehand, over held-out runs, and what came out.

    Attributes:
        what: in words.
        limit: absolute relative error that was aimed at.
        reached: the one that came out.
        runs: it is over.
    """

    what: str
    limit: float
    reached: float
    runs: int

    @property
    def is_met(self) -> bool:
        """Whether it came out at the limit or below."""
        return self.reached <= self.limit


def score(simulated: Sequence[float], measured: Sequence[float]) -> ErrorScore:
    """Of pairs of times."""
    ratio = np.array(simulated) / np.array(measured)
    error, log = np.abs(ratio - 1.0), -np.log(ratio)
    return ErrorScore(
        median=float(np.median(error)),
        p95=float(np.percentile(error, 95)),
        bias=float(log.mean()),
        spread=float(log.std()),
    )


def group_of(outcome: Outcome) -> tuple[str, bool]:
    """The run's model, those with very many in flight apart, and whether it was fitted to."""
    row = outcome.row
    many = f", {row.concurrency} in flight" if row.concurrency >= FITTED_BELOW_CONCURRENCY else ""
    return f"{row.model.name}{many}", outcome.fitted


def score_groups(outcomes: Sequence[Outcome]) -> list[GroupScore]:
    """By name, the runs that were fitted to first."""
    groups: dict[tuple[str, bool], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(group_of(outcome), []).append(outcome)
    return [
        GroupScore(
            name=name,
            fitted=fitted,
            runs=len(members),
            tpot=score([o.tpot_s for o in members], [o.row.tpot_s for o in members]),
            ttft=score([o.ttft_s for o in members], [o.row.ttft_s for o in members]),
            tokens_per_s=score(
                [o.tokens_per_s for o in members], [o.measured_tokens_per_s for o in members]
            ),
        )
        for (name, fitted), members in sorted(
            groups.items(), key=lambda group: (group[0][0], not group[0][1])
        )
    ]


def _tpot(outcome: Outcome) -> float:
    return abs(outcome.tpot_error)


def _ttft(outcome: Outcome) -> float:
    return abs(outcome.ttft_error)


def _median(errors: list[float]) -> float:
    return float(np.median(errors))


def _p95(errors: list[float]) -> float:
    return float(np.percentile(errors, 95))


_Statistic = Callable[[list[float]], float]
_TARGETS: tuple[tuple[str, str, Callable[[Outcome], float], _Statistic, int, float], ...] = (
    ("Llama-70B FP8", "TPOT, median", _tpot, _median, 1 << 40, 0.06),
    ("Llama-70B FP8", "TPOT, p95", _tpot, _p95, 1 << 40, 0.20),
    ("Llama-70B FP8", "TTFT, prompts of 1k, median", _ttft, _median, SHORT_PROMPT_TOKENS, 0.20),
    ("Qwen3-32B", "TPOT, median", _tpot, _median, 1 << 40, 0.06),
    ("Qwen3-32B", "TPOT, p95", _tpot, _p95, 1 << 40, 0.20),
    ("Qwen3-32B", "TTFT, prompts of 1k, median", _ttft, _median, SHORT_PROMPT_TOKENS, 0.20),
    ("gpt-oss-120b", "TPOT, median", _tpot, _median, 1 << 40, 0.06),
)
"""Group, words, error, statistic, longest prompt in tokens, limit."""


def score_targets(outcomes: Sequence[Outcome]) -> list[Target]:
    """Those of which there are held-out runs."""
    found = []
    for group, words, error, statistic, longest, limit in _TARGETS:
        errors = [
            error(outcome)
            for outcome in outcomes
            if group_of(outcome) == (group, False) and outcome.row.prompt_tokens <= longest
        ]
        if errors:
            found.append(Target(f"{group}: {words}", limit, statistic(errors), len(errors)))
    return found
