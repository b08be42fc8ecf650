"""The recorder keeps what happens in a run, and writes it while the run goes on."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from fleetsim.sim.request import Journey
from fleetsim.sim.results.facts import ReplicaRecord, RunFacts, TenantUsage
from fleetsim.sim.results.request_rows import RequestRows
from fleetsim.sim.results.schema import (
    DECISIONS,
    ITL_HISTOGRAM,
    REPLICAS,
    RESULT_SCHEMA_VERSION,
    SCALING,
    TABLES,
    TIMELINE,
    USAGE,
)
from fleetsim.sim.results.store import FolderStore, MemoryStore, Store, write_json

Status = Literal["complete", "interrupted"]

_TIMELINE_COLUMNS = len(TIMELINE)
_TIMELINE_CHUNK = 65_536


class Recorder:
    """Takes ended journeys and samples, and streams them to a result folder or to memory.

    In a run the order of calls is: any number of `journey`, `sample`, `transition` and
    `decision`; then `flush`, after which `store` holds every row; then `close`. A run that dies
    before `close` leaves a folder with the parts written so far and no `status.json`.

    Args:
        folder: a folder that does not exist yet or is empty; None keeps the result in memory.
        chunk: journeys per part. It bounds memory, and does not change the rows.

    Raises:
        InputError: when the folder exists and is not empty.
        OSError: from any method that writes, with the file's name, when it cannot be written.
    """

    __slots__ = (
        "_chunk",
        "_decisions",
        "_pool_codes",
        "_requests",
        "_samples",
        "_samples_limit",
        "_transitions",
        "store",
    )

    def __init__(self, folder: Path | None, *, chunk: int = 8192) -> None:
        self.store: Store = MemoryStore() if folder is None else FolderStore.create(folder)
        self._chunk = chunk
        self._requests = RequestRows()
        self._samples = array("d")
        self._samples_limit = _TIMELINE_CHUNK * _TIMELINE_COLUMNS
        self._pool_codes: dict[str, int] = {}
        self._transitions: list[tuple[float, str, int, str, str, str]] = []
        self._decisions: list[tuple[float, int, int, str, int, str, Sequence[float] | None]] = []

    def journey(self, journey: Journey) -> None:
        """Keep a journey that has ended."""
        requests = self._requests
        requests.add(journey)
        if len(requests) >= self._chunk:
            self._flush_requests()

    def sample(
        self,
        t_s: float,
        pool: str,
        replica: int,
        running: int,
        waiting: int,
        kv_usage: float,
        ready_replicas: int,
    ) -> None:
        """Keep the state of one replica at one time: a row of the timeline.

        kv_usage is the share of KV blocks in use, 0 to 1; ready_replicas counts the pool.
        """
        code = self._pool_codes.setdefault(pool, len(self._pool_codes))
        self._samples.extend((t_s, code, replica, running, waiting, kv_usage, ready_replicas))
        if len(self._samples) >= self._samples_limit:
            self._flush_samples()

    def transition(
        self, t_s: float, pool: str, replica: int, from_state: str, to_state: str, reason: str
    ) -> None:
        """Keep a change in the life of a replica: a row of `scaling.parquet`."""
        self._transitions.append((t_s, pool, replica, from_state, to_state, reason))

    def decision(
        self,
        t_s: float,
        request_id: int,
        attempt: int,
        pool: str,
        replica: int,
        reason: str,
        scores: Sequence[float] | None = None,
    ) -> None:
        """Keep a router's decision; only runs that ask for decisions call this."""
        self._decisions.append((t_s, request_id, attempt, pool, replica, reason, scores))
        if len(self._decisions) >= self._chunk:
            self._flush_decisions()

    def text(self, name: str, content: str) -> None:
        """Keep a text beside the tables, such as the resolved scenario."""
        self.store.write_text(name, content)

    def flush(self) -> None:
        """Hand all rows that are still held back to the store."""
        if self._requests:
            self._flush_requests()
        if self._samples:
            self._flush_samples()
        if self._decisions:
            self._flush_decisions()
        if self._transitions:
            self.store.append("scaling", _rows_table(self._transitions, SCALING))
            self._transitions = []

    def close(self, facts: RunFacts, summary: dict[str, Any], status: Status) -> None:
        """Write the tables of the run as a whole, the summary, and the status last of all."""
        self.flush()
        self.store.append("replicas", _records_table(facts.replicas, REPLICAS))
        self.store.append("usage", _records_table(facts.usage, USAGE))
        self.store.append("itl_histogram", _histograms_table(facts))
        write_json(self.store, "summary.json", summary)
        rows_written = {name: self.store.rows(name) for name in TABLES}
        write_json(
            self.store,
            "status.json",
            {"status": status, "schema_version": RESULT_SCHEMA_VERSION, "rows": rows_written},
        )

    def _flush_requests(self) -> None:
        self.store.append("requests", self._requests.table())
        self._requests = RequestRows()

    def _flush_samples(self) -> None:
        rows = np.frombuffer(self._samples).reshape(-1, _TIMELINE_COLUMNS)
        pools = pa.array(list(self._pool_codes), pa.string())
        columns = []
        for index, field in enumerate(TIMELINE):
            values = rows[:, index]
            if pa.types.is_string(field.type):
                columns.append(pools.take(pa.array(values.astype(np.int32))))
            else:
                columns.append(pa.array(values.astype(field.type.to_pandas_dtype()), field.type))
        self.store.append("timeline", pa.Table.from_arrays(columns, schema=TIMELINE))
        self._samples = array("d")

    def _flush_decisions(self) -> None:
        self.store.append("decisions", _rows_table(self._decisions, DECISIONS))
        self._decisions = []


def _rows_table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _records_table(records: Sequence[ReplicaRecord | TenantUsage], schema: pa.Schema) -> pa.Table:
    return _rows_table([attrgetter(*schema.names)(record) for record in records], schema)


def _histograms_table(facts: RunFacts) -> pa.Table:
    parts = []
    for pool in facts.pools:
        lower_s, upper_s, count = pool.itl.bins()
        names = pa.array([pool.name] * len(count), pa.string())
        parts.append(pa.Table.from_arrays([names, lower_s, upper_s, count], schema=ITL_HISTOGRAM))
    return pa.concat_tables(parts) if parts else ITL_HISTOGRAM.empty_table()
