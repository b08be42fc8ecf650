"""The tables on the documentation's page of the validation."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fleetsim.calibration.silicon import ExcludedRow
from fleetsim.sim.backtest.validation import Validation
from fleetsim.sim.backtest.validation_report import (
    GROUP_COLUMNS,
    ROW_COLUMNS,
    TARGET_COLUMNS,
    group_cells,
    in_order,
    markdown_table,
    reasons,
    row_cells,
    target_cells,
)
from fleetsim.sim.backtest.validation_scores import score_groups, score_targets
from fleetsim.traces.errors import InputError


def page_tables(validation: Validation, excluded: Sequence[ExcludedRow]) -> dict[str, str]:
    """Each table by the name of its place on the page."""
    outcomes = validation.outcomes
    why = Counter(reasons(validation, excluded))
    return {
        "targets": markdown_table(TARGET_COLUMNS, map(target_cells, score_targets(outcomes))),
        "groups": markdown_table(GROUP_COLUMNS, map(group_cells, score_groups(outcomes))),
        "left out": markdown_table(
            ("rows", "why they are not simulated"),
            ((f"{count}", reason) for reason, count in why.most_common()),
        ),
        "rows": markdown_table(ROW_COLUMNS, map(row_cells, in_order(outcomes))),
    }


def renew_page(page: Path, validation: Validation, excluded: Sequence[ExcludedRow]) -> None:
    """Put the tables between the page's marks ``<!-- name -->`` and ``<!-- end of name -->``.

    Raises:
        InputError: the page cannot be read, or lacks the place of a table.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--page {page}: cannot be read: {error}") from error
    for name, table in page_tables(validation, excluded).items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not place.search(text):
            raise InputError(f"--page {page}: has no <!-- {name} --> ... <!-- end of {name} -->")
        text = place.sub(lambda found, table=table: f"{found[1]}{table}{found[2]}", text)  # type: ignore[misc]
    page.write_text(text, encoding="utf-8")
