"""The formats that fleetsim reads, and how a file is recognised as one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fleetsim.traces.sources.content import Content
from fleetsim.traces.sources.csv_rows import CsvHeader
from fleetsim.traces.sources.rows import Rows

Kind = Literal["CSV", "JSONL", "JSON", "Parquet"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file looks from outside.

    Attributes:
        kind: container; JSON is one object over several lines, or a tar of such ones.
        columns: names of its columns, or the keys of its first object.
        header: of a CSV file.
        table: the Arrow table of a Parquet file.
        rows: the first objects of a JSONL file, as many as lie in its head; of an object longer
            than that, the keys and values that lie in it.
    """

    kind: Kind
    columns: tuple[str, ...]
    header: CsvHeader | None = None
    table: Any = None
    rows: tuple[dict[str, Any], ...] = ()


def _always(layout: Layout) -> bool:
    return True


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
        recognise: tells by the first rows, where the columns are those of another format too.
        within: formats whose files are files of this one too, and mean the same in it; such a
            file is read as the other format.
        checks_columns: other columns are the loader's to refuse, or to leave aside.
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
    recognise: Callable[[Layout], bool] = _always
    within: tuple[str, ...] = ()
    checks_columns: bool = False
    any_of: tuple[tuple[str, ...], ...] = ()
    ignores_others: bool = False

    def describe(self) -> str:
        """Give name, containers and required columns in one phrase."""
        return f"{self.name} ({'/'.join(self.kinds)}: {','.join(self.required)})"

    def has_columns(self, layout: Layout) -> bool:
        """Tell whether a file has the container and the columns that the format needs."""
        columns = set(layout.columns)
        return (
            layout.kind in self.kinds
            and set(self.required) <= columns
            and all(columns.intersection(names) for names in self.any_of)
        )

    def unknown_columns(self, layout: Layout) -> list[str]:
        """List columns for which the format has no place."""
        if self.ignores_others:
            return []
        return [name for name in layout.columns if name not in (*self.required, *self.optional)]
