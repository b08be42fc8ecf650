"""The formats that fleetsim reads, and how a file is recognised as one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import CsvHeader
from fleetsim.traces.sources.rows import Rows

Kind = Literal["CSV", "JSONL", "Parquet"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file looks from outside.

    Attributes:
        kind: container.
        columns: names of its columns, or the keys of its first object.
        header: of a CSV file.
        table: the Arrow table of a Parquet file.
        first: the first object of a JSON file.
    """

    kind: Kind
    columns: tuple[str, ...]
    header: CsvHeader | None = None
    table: Any = None
    first: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format.

    Attributes:
        name: as in ``load_trace(format=...)``.
        about: one line for people.
        kinds: containers in which it comes.
        required: columns without which a file is not of this format.
        optional: columns that it may have besides; any other column is an error.
        read: reads the rows; gets the content, its layout.
        any_of: groups of columns of which a file must have at least one each, where the same
            thing has several names.
        ignores_others: any other column is left alone instead of being an error.
    """

    name: str
    about: str
    kinds: tuple[Kind, ...]
    required: tuple[str, ...]
    optional: tuple[str, ...]
    read: Callable[[Content, Layout], Rows]
    any_of: tuple[tuple[str, ...], ...] = ()
    ignores_others: bool = False

    def fits(self, layout: Layout) -> bool:
        """Whether a file with this layout has what the format needs."""
        columns = set(layout.columns)
        return (
            layout.kind in self.kinds
            and set(self.required) <= columns
            and all(columns.intersection(names) for names in self.any_of)
        )

    def describe(self) -> str:
        """Give name, containers and required columns in one phrase."""
        return f"{self.name} ({'/'.join(self.kinds)}: {','.join(self.required)})"
