"""What docs/traces.md shows is what happens."""

import re
from pathlib import Path

import numpy as np
import pytest

from fleetsim.traces import FORMATS, build_segments, load_sample, load_trace
from fleetsim.traces.sources.plain import OPTIONAL, REQUIRED

TEXT = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_examples_run(number: int) -> None:
    exec(blocks("python")[number], {})


def test_csv_example(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(blocks("csv")[0])
    trace = load_trace(path)
    segments = build_segments(trace)
    assert segments is not None
    assert len(trace) == 3
    assert np.diff(segments.offsets).tolist() == [3, 2, 3]


def test_every_format_and_column_is_described() -> None:
    for form in FORMATS.values():
        assert f"| `{form.name}` | {', '.join(form.kinds)} | `{','.join(form.required)}` |" in TEXT
    for column in (*REQUIRED, *OPTIONAL):
        assert f"`{column}`" in TEXT


def test_figures_of_the_sample() -> None:
    trace = load_sample()
    assert trace.tenant is not None
    for code, name in enumerate(trace.tenant.names):
        rows = trace.tenant.codes == code
        prompt, output = trace.prompt_tokens[rows], trace.output_tokens[rows]
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{name}` | "))
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[2] == f"{rows.sum():,}"
        assert cells[5] == f"{np.median(prompt):.0f} / {prompt.mean():.0f}"
        assert cells[6] == f"{np.median(output):.0f} / {output.mean():.0f}"
