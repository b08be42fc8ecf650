"""A validation as text, JSON, CSV, Markdown and a picture."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fleetsim.calibration.silicon import LISTED_AGAIN, ExcludedRow, SiliconRow
from fleetsim.sim.backtest.validation import Outcome, Validation
from fleetsim.sim.backtest.validation_scores import GroupScore, Target, score_groups, score_targets

GROUP_COLUMNS = ("model", "", "runs", "TPOT median", "p95", "bias", "TTFT median", "p95", "bias")
ROW_COLUMNS = (
    *("model", "GPUs", "vLLM", "in / out", "in flight", ""),
    *("TPOT ms", "simulated", "error", "TTFT ms", "simulated", "error", "out tok/s", "error"),
)
TARGET_COLUMNS = ("held-out runs of", "runs", "aimed at", "reached", "")


def group_cells(group: GroupScore) -> tuple[str, ...]:
    """A line of the table of groups. The bias is of simulated against measured, geometric."""
    return (
        group.name,
        "fitted" if group.fitted else "held out",
        f"{group.runs}",
        *(
            cell
            for score in (group.tpot, group.ttft)
            for cell in (f"{score.median:.1%}", f"{score.p95:.1%}", f"{-score.bias:+.1%}")
        ),
    )


def target_cells(target: Target) -> tuple[str, ...]:
    """A line of the table of targets."""
    verdict = "met" if target.is_met else "missed"
    return target.what, f"{target.runs}", f"{target.limit:.0%}", f"{target.reached:.1%}", verdict


def row_cells(outcome: Outcome) -> tuple[str, ...]:
    """A line of the table of runs."""
    row = outcome.row
    return (
        *setup_cells(row),
        "fitted" if outcome.fitted else "held out",
        f"{row.tpot_s * 1e3:,.2f}",
        f"{outcome.tpot_s * 1e3:,.2f}",
        f"{outcome.tpot_error:+.1%}",
        f"{row.ttft_s * 1e3:,.0f}",
        f"{outcome.ttft_s * 1e3:,.0f}",
        f"{outcome.ttft_error:+.1%}",
        f"{outcome.measured_tokens_per_s:,.0f}",
        f"{outcome.tokens_per_s / outcome.measured_tokens_per_s - 1.0:+.1%}",
    )


def setup_cells(row: SiliconRow) -> tuple[str, ...]:
    """What was run: model, GPUs, version, lengths, concurrency."""
    return (
        row.model.name,
        f"{row.tensor_parallel_size} {row.gpu.upper()}",
        row.engine_version or "?",
        f"{row.prompt_tokens} / {row.output_tokens}",
        f"{row.concurrency}",
    )


def in_order(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """By model, GPU, size, lengths and concurrency."""
    return sorted(outcomes, key=lambda outcome: _place(outcome.row))


def _place(row: SiliconRow) -> tuple[object, ...]:
    lengths = row.prompt_tokens, row.output_tokens
    gpus = row.gpu, row.tensor_parallel_size
    return row.model.name, *gpus, *lengths, row.concurrency, row.row_id


def text_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> Table:
    """For a terminal."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    return table


def markdown_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """For a page."""
    heads = [columns, ["---"] * len(columns)]
    return "".join("| " + " | ".join(line) + " |\n" for line in (*heads, *lines))


def reasons(validation: Validation, excluded: Sequence[ExcludedRow]) -> list[str]:
    """Why rows were not simulated, one a row; of runs listed again without saying of which."""
    return [
        *(
            f"not covered: {missing.row.model.name}: {missing.reason}"
            for missing in validation.not_covered
        ),
        *(LISTED_AGAIN if row.reason.endswith(LISTED_AGAIN) else row.reason for row in excluded),
    ]


def print_validation(validation: Validation, excluded: Sequence[ExcludedRow], file: TextIO) -> None:
    """All runs, then what was left out, the groups and the targets."""
    # Wide enough for the longest line whatever the terminal: a cut number is a wrong one.
    console = Console(file=file, width=180)
    outcomes = in_order(validation.outcomes)
    console.print(text_table(ROW_COLUMNS, map(row_cells, outcomes)))
    for reason, count in Counter(reasons(validation, excluded)).most_common():
        console.print(f"\nnot simulated: {count} rows: {reason}", markup=False, highlight=False)
    console.print()
    console.print(text_table(GROUP_COLUMNS, map(group_cells, score_groups(outcomes))))
    targets = score_targets(outcomes)
    if targets:
        console.print()
        console.print(text_table(TARGET_COLUMNS, map(target_cells, targets)))


def validation_json(validation: Validation, excluded: Sequence[ExcludedRow]) -> dict[str, Any]:
    """Everything; times in seconds, errors relative."""
    return {
        "groups": [
            {
                "model": group.name,
                "group": "fitted" if group.fitted else "held out",
                "runs": group.runs,
                **{
                    f"{name}_{key}": round(getattr(score, key), 6)
                    for name, score in (
                        ("tpot", group.tpot),
                        ("ttft", group.ttft),
                        ("tokens_per_s", group.tokens_per_s),
                    )
                    for key in ("median", "p95", "bias", "spread")
                },
            }
            for group in score_groups(validation.outcomes)
        ],
        "targets": [
            {
                "what": target.what,
                "runs": target.runs,
                "limit": target.limit,
                "reached": round(target.reached, 6),
                "met": target.is_met,
            }
            for target in score_targets(validation.outcomes)
        ],
        "runs": [_outcome_json(outcome) for outcome in in_order(validation.outcomes)],
        "not_covered": [
            {"id": missing.row.row_id, "reason": missing.reason}
            for missing in validation.not_covered
        ],
        "excluded": [{"id": row.row_id, "reason": row.reason} for row in excluded],
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    row = outcome.row
    return {
        "id": row.row_id,
        "model": row.model.name,
        "gpu": row.gpu,
        "tensor_parallel_size": row.tensor_parallel_size,
        "engine_version": row.engine_version,
        "scheduling": row.mode,
        "prompt_tokens": row.prompt_tokens,
        "output_tokens": row.output_tokens,
        "concurrency": row.concurrency,
        "group": "fitted" if outcome.fitted else "held out",
        "tpot_measured_s": row.tpot_s,
        "tpot_simulated_s": outcome.tpot_s,
        "tpot_error": outcome.tpot_error,
        "ttft_measured_s": row.ttft_s,
        "ttft_simulated_s": outcome.ttft_s,
        "ttft_error": outcome.ttft_error,
        "tokens_per_s_measured": outcome.measured_tokens_per_s,
        "tokens_per_s_simulated": outcome.tokens_per_s,
        "preemptions": outcome.preemptions,
    }


def validation_csv(validation: Validation, excluded: Sequence[ExcludedRow]) -> str:
    """One line a row of the source; those that were not simulated with the reason."""
    runs = [_outcome_json(outcome) for outcome in in_order(validation.outcomes)]
    left_out = [
        *(
            ("not covered", missing.row.row_id, missing.reason)
            for missing in validation.not_covered
        ),
        *(("excluded", row.row_id, row.reason) for row in excluded),
    ]
    lines = [*runs, *({"group": group, "id": key, "reason": why} for group, key, why in left_out)]
    columns = [*dict.fromkeys(column for line in lines for column in line)]
    frame = pd.DataFrame(lines, columns=columns)
    counts = frame.columns.intersection(
        ["tensor_parallel_size", "prompt_tokens", "output_tokens", "concurrency", "preemptions"]
    )
    return frame.astype(dict.fromkeys(counts, "Int64")).to_csv(index=False, lineterminator="\n")


def validation_figure(validation: Validation) -> Figure:
    """Simulated against measured, and the lines at which it would be 20 % off."""
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    outcomes = validation.outcomes
    for axes, name, scale, pairs in (
        (0, "TPOT (ms)", 1e3, [(o.row.tpot_s, o.tpot_s, o.fitted) for o in outcomes]),
        (1, "TTFT, mean (s)", 1.0, [(o.row.ttft_s, o.ttft_s, o.fitted) for o in outcomes]),
    ):
        ax = figure.add_subplot(1, 2, axes + 1)
        times = [time * scale for pair in pairs for time in pair[:2]]
        if times:
            ends = [min(times) / 1.2, max(times) * 1.2]
            ax.loglog(ends, ends, color="0.5", linewidth=1, label="equal")
            for factor, label in ((1.2, "20 % off"), (0.8, None)):
                line = [end * factor for end in ends]
                ax.loglog(ends, line, "--", color="0.7", linewidth=1, label=label)
        for fitted, colour, label in (
            (False, "#D55E00", "held out"),
            (True, "#0072B2", "host work fitted"),
        ):
            points = [(was * scale, is_ * scale) for was, is_, f in pairs if f is fitted]
            if points:
                ax.loglog(*zip(*points, strict=True), ".", color=colour, label=label)
        ax.set_xlabel(f"measured {name}")
        ax.set_ylabel(f"simulated {name}")
        ax.legend()
    return figure
