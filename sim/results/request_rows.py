"""Journeys become rows of the `requests` table as they end, so that none of them is kept alive."""

from __future__ import annotations

from operator import attrgetter
from struct import Struct

import numpy as np
import pyarrow as pa

from fleetsim.sim.request import Journey
from fleetsim.sim.results.schema import FROM_JOURNEY, FROM_REQUEST, REQUESTS

# Where a journey keeps each column: numbers are packed, texts are kept as they are.
_PLACES = {
    **{name: f"request.{name}" for name, _ in FROM_REQUEST},
    **{name: name for name, _ in FROM_JOURNEY},
}
_TEXTS = [field.name for field in REQUESTS if pa.types.is_string(field.type)]
_NUMBERS = [field.name for field in REQUESTS if not pa.types.is_string(field.type)]
_ENTRY = np.dtype([(name, REQUESTS.field(name).type.to_pandas_dtype()) for name in _NUMBERS])
_STRUCT_CODES = {pa.int64(): "q", pa.int32(): "i", pa.float64(): "d", pa.bool_(): "?"}
_pack = Struct("=" + "".join(_STRUCT_CODES[REQUESTS.field(name).type] for name in _NUMBERS)).pack
_numbers_of = attrgetter(*(_PLACES[name] for name in _NUMBERS))
_texts_of = attrgetter(*(_PLACES[name] for name in _TEXTS))


class RequestRows:
    """Rows of the `requests` table."""

    __slots__ = ("_numbers", "_texts")

    def __init__(self) -> None:
        self._numbers = bytearray()
        self._texts: list[tuple[str | None, ...]] = []

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, journey: Journey) -> None:
        """Append a journey as it is now."""
        self._numbers += _pack(*_numbers_of(journey))
        self._texts.append(_texts_of(journey))

    def table(self) -> pa.Table:
        """All rows, in the order in which they were added."""
        numbers = np.frombuffer(self._numbers, _ENTRY)
        texts = dict(zip(_TEXTS, zip(*self._texts, strict=True), strict=True))
        columns = [
            # arrow wants a column's numbers side by side
            pa.array(texts[name] if name in texts else numbers[name].copy(), kind)
            for name, kind in (*FROM_REQUEST, *FROM_JOURNEY)
        ]
        return pa.Table.from_arrays(columns, schema=REQUESTS)
