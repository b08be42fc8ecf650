"""Progress of a run on standard error, for people."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[float, float, int], None]
"""Told the simulated time, the time at which arrivals end, and how many requests have ended."""


@contextmanager
def progress_bar(wanted: bool | None) -> Iterator[Progress | None]:
    """A bar that follows simulated time; None where nobody would see it.

    Args:
        wanted: yes, no, or None for yes if standard error is a terminal.
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("simulating"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} s"),
        TextColumn("{task.fields[ended]:,} requests"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0, ended=0)

        def show(sim_time_s: float, end_time_s: float, requests_ended: int) -> None:
            total_s = max(sim_time_s, end_time_s)
            bar.update(task, completed=sim_time_s, total=total_s, ended=requests_ended)

        yield show
