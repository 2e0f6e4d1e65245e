"""Read one export: tables in, parked batches and what the export says about itself out."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from tracekit.errors import UnusableInputError
from tracekit.ingest import files, spool
from tracekit.ingest.arrays import of_arrow
from tracekit.ingest.kineto.toplevel import Distributed
from tracekit.ingest.nsys import about, device, host, samples, vendor
from tracekit.ingest.nsys.opening import open_tables
from tracekit.ingest.nsys.rows import timely
from tracekit.ingest.nsys.strings import Strings
from tracekit.ingest.trace import Trace
from tracekit.meta import Diagnostic, Level
from tracekit.schema import ALLOCATIONS, COUNTERS, DEVICE_INTERVALS, HOST_INTERVALS, C

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tracekit.ingest.nsys.tables import Chunk, Tables
    from tracekit.places import Place


class Tally(msgspec.Struct):
    """What was noticed while an export was read.

    Attributes:
        rows: Rows of events by table.
        bad: Rows by table whose end is absent or before their start.
        dropped: Rows by table without a usable time; they are among `rows`.
    """

    rows: dict[str, int] = msgspec.field(default_factory=dict)
    bad: dict[str, int] = msgspec.field(default_factory=dict)
    dropped: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, table: str, rows: int, *, bad: int = 0, dropped: int = 0) -> None:
        """Count a chunk."""
        self.rows[table] = self.rows.get(table, 0) + rows
        for counts, count in ((self.bad, bad), (self.dropped, dropped)):
            if count:
                counts[table] = counts.get(table, 0) + count


@dataclass(frozen=True)
class NsysTrace(Trace):
    """What an export holds of one rank, or all of it where it does not tell ranks.

    Attributes:
        said: The tool's own warnings.
        reason: Why device activity may be missing.
        tally: What was noticed.
    """

    said: tuple[Diagnostic, ...]
    reason: str
    tally: Tally

    def notes(self) -> Iterator[Diagnostic]:
        """What reading noticed, and what the tool itself noticed while it recorded."""
        name = files.name(self.path)
        if self.top.simulated:
            yield Diagnostic(Level.INFO, "simulated", f"{name}: written by a simulator, not recorded")
        yield from self.said
        for table, count in sorted(self.tally.bad.items()):
            what = f"{name}: {count} of {self.tally.rows[table]} rows of {table} have no usable end: "
            treated = "a range lasts until the capture's end" if table == vendor.NVTX else "they last 0 ns"
            yield Diagnostic(Level.WARN, "bad_duration", what + treated)
        for table, count in sorted(self.tally.dropped.items()):
            what = f"{name}: {count} of {self.tally.rows[table]} rows of {table} "
            yield Diagnostic(Level.WARN, "bad_timestamp", what + "had no usable time stamp and were dropped")
        if not self.top.base_ns:
            said = f"{name}: the export does not say when the capture began; times count from 1970"
            yield Diagnostic(Level.INFO, "no_start_time", said)
        if self.tally.rows.get(vendor.MEMORY):
            said = f"{name}: allocations are the CUDA driver's (cudaMalloc), not those of tensors"
            yield Diagnostic(Level.INFO, "driver_allocations", said)

    def empty(self) -> UnusableInputError:
        """The error for an export that gives no interval."""
        return UnusableInputError(
            f"{files.name(self.path)} has no events: {self.reason}",
            hint="profile again with `nsys profile --trace=cuda,nvtx,osrt`",
        )

    def no_device_work(self) -> str:
        """What the tool says of missing device activity."""
        return self.reason


def read(path: Place, directory: Path, progress: Callable[[int], None]) -> list[Trace]:
    """Read an export and park its batches.

    Args:
        path: A SQLite export, a folder of Parquet tables, or a report, which is exported first.
        directory: An existing folder for the batches.
        progress: Told about how many bytes are read so far.

    Returns:
        One trace for each rank where the export tells them, else one.

    Raises:
        UnusableInputError: It is no export, a damaged one, or a report that cannot be exported here.
    """
    with closing(open_tables(path, directory)) as tables:
        reading = _Reading(tables, directory)
        size = files.size(path)
        for share in reading.park():
            progress(int(size * share))
        return reading.traces(path)


class _Reading:
    """One export while it is read."""

    def __init__(self, tables: Tables, directory: Path) -> None:
        self._tables, self._directory = tables, directory
        self._strings = Strings(tables)
        self._ranks = about.mpi_ranks(tables)
        self._metrics = samples.metric_names(tables)
        self._end = about.capture_end(tables)
        self._tally = Tally()
        self._devices = device.Devices()
        self._part = 0

    def park(self) -> Iterator[float]:
        """Park every table of events; gives the share of the tables that are done."""
        there = [table for table in _ORDER if table in self._tables.names()]
        for done, table in enumerate(there, start=1):
            for chunk in self._tables.chunks(table, _WANTED[table]):
                usable = timely(chunk, _TIMES.get(table, "start"))
                self._tally.add(table, chunk.rows, dropped=chunk.rows - usable.rows)
                if usable.rows:
                    self._park(*self._rows(table, usable))
            yield done / len(there)

    def _rows(self, table: str, chunk: Chunk) -> tuple[str, pa.RecordBatch]:
        """A chunk as rows of one of the project's tables."""
        bad = 0
        if table in device.WANTED:
            name = DEVICE_INTERVALS.name
            batch, bad = device.intervals(table, self._placed(table, chunk), self._strings)
        elif table in host.WANTED:
            name = HOST_INTERVALS.name
            batch, bad = host.intervals(table, chunk, self._strings, end=self._end)
        elif table == vendor.MEMORY:
            name, batch = ALLOCATIONS.name, samples.allocations(chunk)
        else:
            name, batch = COUNTERS.name, samples.metrics(chunk, self._metrics)
        self._tally.add(table, 0, bad=bad)
        return name, batch

    def _placed(self, table: str, chunk: Chunk) -> Chunk:
        """Waits with the device that their process works on; the export numbers it otherwise there."""
        if table == vendor.SYNC:
            return self._devices.corrected(chunk)
        self._devices.add(chunk)
        return chunk

    def _park(self, table: str, batch: pa.RecordBatch) -> None:
        for rank, rows in self._by_rank(batch):
            if rows.num_rows:
                place = self._place(rank)
                place.mkdir(exist_ok=True)
                spool.park(place, self._part, {table: of_arrow(rows)})
        self._part += 1

    def _by_rank(self, batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
        """A batch's rows by rank; processes without one, such as a launcher, go with the lowest."""
        if len(set(self._ranks.values())) < 2 or C.PID not in batch.schema.names:
            yield self._lowest, batch
            return
        pids, place = np.unique(batch.column(C.PID).to_numpy(), return_inverse=True)
        ranks = np.array([self._ranks.get(int(pid), self._lowest) for pid in pids])[place]
        for rank in np.unique(ranks):
            yield int(rank), batch.filter(pa.array(ranks == rank))

    @property
    def _lowest(self) -> int | None:
        return min(self._ranks.values(), default=None)

    def _place(self, rank: int | None) -> Path:
        return self._directory / f"rank-{rank or 0:05d}"

    def traces(self, path: Place) -> list[Trace]:
        """What was parked."""
        top, said = about.top(self._tables), about.diagnostics(self._tables)
        reason = about.reason(said, self._tables)
        ranks: list[int | None] = [*sorted(set(self._ranks.values()))]
        found: list[Trace] = []
        for rank in ranks or [None]:
            own = msgspec.structs.replace(top, distributed=_distributed(rank, len(ranks)))
            self._place(rank).mkdir(exist_ok=True)
            found.append(
                NsysTrace(path, self._place(rank), own, () if found else tuple(said), reason, self._tally)
            )
        return found


def _distributed(rank: int | None, ranks: int) -> Distributed | None:
    return None if rank is None else Distributed(rank=rank, world_size=ranks)


_WANTED = {
    **device.WANTED,
    **host.WANTED,
    vendor.MEMORY: samples.ALLOCATED,
    vendor.METRICS: samples.METRICS,
}
_TIMES = {vendor.METRICS: "timestamp"}
"""Columns of time that are not called start."""
_ORDER = tuple(_WANTED)
