"""Read an export of Nsight Systems in any of its formats to the spool.

Only named columns of some tables are read. `META_DATA_CAPTURE`, which contains all environment variables of
the program, is never opened; host and user names and paths are not read.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracekit import storage
from tracekit.errors import UnusableInputError, printable
from tracekit.ingest.kineto.source import file_bytes, file_name
from tracekit.ingest.link.trace import DeviceProperties, Distributed, TopLevel, Trace
from tracekit.ingest.nsys import events, report, rows
from tracekit.ingest.nsys.rows import Chunk, Strings, Tables
from tracekit.ingest.nsys.sqlite import SqliteTables
from tracekit.ingest.spool import part_files
from tracekit.ingest.spool.rows import Batch
from tracekit.ingest.spool.text_columns import EARLIEST_INSTANT_NS, LATEST_NS, MAX_RANKS
from tracekit.runs.meta import Diagnostic, Level
from tracekit.schema import ALLOCATIONS, COUNTERS, DEVICE_INTERVALS, HOST_INTERVALS, C
from tracekit.storage import Place

if TYPE_CHECKING:
    from tracekit.ingest.nsys.parquet import ParquetTables


def is_export(path: Place) -> bool:
    """Return whether a SQLite database has an export's tables; False for a damaged one.

    A database on object storage is assumed to be an export, as checking requires a download.
    """
    if not isinstance(path, Path):
        return True
    try:
        tables = SqliteTables(path)
    except (UnusableInputError, sqlite3.Error):
        return False
    has_tables = bool(tables.names() & (rows.TABLES | rows.MARKS))
    tables.close()
    return has_tables


def open_tables(path: Place, directory: Path) -> SqliteTables | ParquetTables:
    """Open the tables at a path.

    Args:
        path: A SQLite export, a folder of Parquet tables, or a report.
        directory: Folder of the export of a report, if that of the report is not writable, and of downloads
            from object storage.

    Raises:
        UnusableInputError: The path has none of an export's tables.
    """
    local = storage.fetch(path, directory)
    if storage.kind(local) is storage.Kind.FOLDER:
        from tracekit.ingest.nsys.parquet import ParquetTables

        return ParquetTables(local)
    tables = SqliteTables(report.ensure_export(local, directory) if report.is_report(local) else local)
    if not tables.names() & (rows.TABLES | rows.MARKS):
        tables.close()
        what, hint = "an SQLite database, but", "export the report: nsys export --type=sqlite REPORT.nsys-rep"
        if any(table.startswith("rocpd_") for table in tables.names()):
            what = "a database of rocprofv3 (rocpd),"
            hint = "record with torch.profiler, which records devices of ROCm too"
        message = f"{printable(str(path))} is {what} not an export of Nsight Systems"
        raise UnusableInputError(message, hint=hint)
    return tables


_GPU_NUMBERS = {
    "memory_bytes": "totalMemory",
    "sm_count": "smCount",
    "registers_per_sm": "maxRegistersPerSm",
    "shared_bytes_per_sm": "maxShmemPerSm",
    "warp_size": "threadsPerWarp",
    "copy_engines": "asyncEngines",
}
"""Columns of numbers of which 0 is unknown, by property."""
_GPU_WORDS = ("name", "uuid")
_GPU_COLUMNS = ("id", "deviceId", "computeMajor", "computeMinor", "maxWarpsPerSm", *_GPU_NUMBERS.values())
_ABOUT_CUDA = re.compile(r"(?i)cuda|cupti|gpu|\blost\b|dropped|not enough")
_MINOR = re.compile(r"(?i)unified memory cannot be traced")
_HOME = re.compile(r"(/(?:home|Users)|[A-Z]:\\Users)[/\\][^/\\\s]+")
_MAX_TEXT_CHARS = 300
_SIMULATED = "TRACEKIT_SIMULATED"  # marker of exports that the simulator of this project writes


def top_level(tables: Tables) -> TopLevel:
    """Return the start of the capture, its GPUs and driver."""
    started = tables.records("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
    system = tables.records("TARGET_INFO_SYSTEM_ENV", ("name", "value"))  # not host and user names
    drivers = [rows.as_text(row["value"]) for row in system if row["name"] == "NvDriverVersion"]
    return TopLevel(
        devices=gpus(tables),
        base_ns=_instant(started[0]["utcEpochNs"]) if started else 0,
        driver=drivers[-1] if drivers else None,
        tool=f"nsys {version(tables)}".strip(),
        simulated=any(row["name"] == _SIMULATED for row in tables.records("META_DATA_EXPORT", ("name",))),
    )


def _instant(value: Any) -> int:
    """Return a time in ns, 0 if it is beyond the limits."""
    instant = rows.as_integer(value) or 0
    return instant if 0 <= instant < LATEST_NS else 0


def version(tables: Tables) -> str:
    """Return the version of the tool that wrote the export, empty if unknown."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for row in tables.records(table, ("name", "value")):
            if row["name"] == "EXPORT_PRODUCT_VERSION":
                return rows.as_text(row["value"])
    return ""


def gpus(tables: Tables) -> list[DeviceProperties]:
    """Return the CUDA GPUs; old exports have only their names."""
    has_sm_counts = "smCount" in tables.columns("TARGET_INFO_GPU")
    records = tables.records("TARGET_INFO_GPU", (*_GPU_WORDS, *_GPU_COLUMNS))
    return [_gpu(row) for row in records if rows.as_integer(row["smCount"]) or not has_sm_counts]


def _gpu(row: dict[str, Any]) -> DeviceProperties:
    numbers = {name: rows.as_integer(row[name]) for name in _GPU_COLUMNS}
    warps, warp = numbers["maxWarpsPerSm"], numbers["threadsPerWarp"]
    return DeviceProperties(
        index=numbers["id"] if numbers["id"] is not None else numbers["deviceId"] or 0,
        name=rows.as_text(row["name"]),
        major=numbers["computeMajor"],
        minor=numbers["computeMinor"],
        max_threads_per_sm=warps * warp if warps and warp else None,
        uuid=rows.as_text(row["uuid"]) or None,
        **{name: numbers[column] or None for name, column in _GPU_NUMBERS.items()},
    )


def mpi_ranks(tables: Tables) -> dict[int, int]:
    """Return ranks by process, from the table `MPI_RANKS` if it exists."""
    records = tables.records("MPI_RANKS", ("globalPid", "rank"))
    mask = (1 << rows.PROCESS_BITS) - 1
    ranks = [(rows.as_integer(row["globalPid"]), rows.as_integer(row["rank"])) for row in records]
    return {
        process >> rows.PROCESS_BITS & mask: rank
        for process, rank in ranks
        if process is not None and rank is not None and 0 <= rank < MAX_RANKS
    }


def diagnostics(tables: Tables) -> list[Diagnostic]:
    """Return warnings and errors of the tool; those that do not concern the GPU are information."""
    records = tables.records("DIAGNOSTIC_EVENT", ("severity", "text", "timestamp"))
    levels: dict[str, Level] = {}
    for row in sorted(records, key=lambda row: (rows.as_integer(row["timestamp"]) or 0, str(row["text"]))):
        if row["severity"] in (rows.WARNING, rows.ERROR):
            levels.setdefault(_clean(str(row["text"])), _level(row["severity"], str(row["text"])))
    return [Diagnostic(level, "nsys_diagnostic", f"nsys: {text}") for text, level in levels.items()]


def _level(severity: int, text: str) -> Level:
    if _MINOR.search(text) or not _ABOUT_CUDA.search(text):
        return Level.INFO
    return Level.ERROR if severity == rows.ERROR else Level.WARN


def _clean(text: str) -> str:
    """Return one line of limited length, without names of home folders."""
    line = " ".join(_HOME.sub("~", text).split())
    return line if len(line) <= _MAX_TEXT_CHARS else f"{line[:_MAX_TEXT_CHARS]}..."


def no_device_reason(notes: Sequence[Diagnostic], tables: Tables) -> str:
    """Return why device activity may be missing."""
    if not tables.names() & {rows.RUNTIME, rows.KERNEL, rows.MEMCPY}:
        return "the export has no CUDA tables: record with `nsys profile --trace=cuda,nvtx,osrt`"
    messages = [note.message for note in notes if note.level is not Level.INFO]
    if messages:
        return "; ".join(messages)
    return "nsys gives no reason; check permissions with `tracekit doctor`, and that the driver is supported"


class Tally(msgspec.Struct):
    """Counts of unusual rows of an export.

    Attributes:
        rows: Rows of events by table.
        bad: Rows by table whose end is missing or before their start.
        dropped: Rows by table without a usable time, included in `rows`.
    """

    rows: Counter[str] = msgspec.field(default_factory=Counter)
    bad: Counter[str] = msgspec.field(default_factory=Counter)
    dropped: Counter[str] = msgspec.field(default_factory=Counter)


def _diagnostics(name: str, top: TopLevel, tally: Tally) -> Iterator[Diagnostic]:
    """Return the diagnostics of reading an export."""
    for table, count in sorted((+tally.bad).items()):
        what = f"{name}: {count} of {tally.rows[table]} rows of {table} have no usable end: "
        treated = "they last 0 ns"
        if table == rows.NVTX:
            treated = "those without any last until the capture's end, the others 0 ns"
        yield Diagnostic(Level.WARN, "bad_duration", what + treated)
    for table, count in sorted((+tally.dropped).items()):
        what = f"{name}: {count} of {tally.rows[table]} rows of {table} "
        yield Diagnostic(Level.WARN, "bad_timestamp", what + "had no usable time stamp and were dropped")
    if not top.base_ns:
        text = f"{name}: the export does not say when the capture began; times count from 1970"
        yield Diagnostic(Level.INFO, "no_start_time", text)
    if tally.rows.get(rows.MEMORY):
        text = f"{name}: allocations are the CUDA driver's (cudaMalloc), not those of tensors"
        yield Diagnostic(Level.INFO, "driver_allocations", text)


def read(path: Place, directory: Path, progress: Callable[[int], None]) -> list[Trace]:
    """Read an export to the spool.

    Args:
        path: A SQLite export, a folder of Parquet tables, or a report, which is exported first.
        directory: An existing folder for the batches.
        progress: Called with the approximate bytes read so far.

    Returns:
        One trace per rank, or one if the export has no ranks.

    Raises:
        UnusableInputError: The path is not an export, is damaged, or is a report that cannot be exported.
    """
    with closing(open_tables(path, directory)) as tables:
        reading = _Reading(tables, directory)
        size = file_bytes(path)
        for share in reading.spool_tables():
            progress(int(size * share))
        return reading.traces(path)


class _Reading:
    def __init__(self, tables: Tables, directory: Path) -> None:
        self._tables, self._directory = tables, directory
        self._strings = Strings(tables)
        self._ranks = mpi_ranks(tables)
        self._metrics = events.metric_names(tables)
        details = tables.records("ANALYSIS_DETAILS", ("duration",))
        self._end = max((_instant(row["duration"]) for row in details), default=0)
        self._tally = Tally()
        self._devices = events.Devices()
        self._part = 0

    def spool_tables(self) -> Iterator[float]:
        """Spool all event tables; yield the share of tables that are done."""
        present = [table for table in _WANTED if table in self._tables.names()]
        for done, table in enumerate(present, start=1):
            for chunk in self._tables.chunks(table, _WANTED[table]):
                earliest = EARLIEST_INSTANT_NS if table in _INSTANTS else 1 - LATEST_NS
                usable = rows.within_limits(chunk, _INSTANTS.get(table, "start"), earliest=earliest)
                self._tally.rows[table] += chunk.rows
                self._tally.dropped[table] += chunk.rows - usable.rows
                if usable.rows:
                    self._spool(*self._rows(table, usable))
            yield done / len(present)

    def _rows(self, table: str, chunk: Chunk) -> tuple[str, Batch]:
        """Convert a chunk to rows of a table of the schema."""
        bad = 0
        if table in events.DEVICE_TABLES:
            name = DEVICE_INTERVALS.name
            if table == rows.SYNC:  # exports number the devices of waits differently
                chunk = self._devices.correct(chunk)
            else:
                self._devices.add(chunk)
            batch, bad = events.device_intervals(table, chunk, self._strings)
        elif table in events.HOST_TABLES:
            name = HOST_INTERVALS.name
            batch, bad = events.host_intervals(table, chunk, self._strings, end=self._end)
        elif table == rows.MEMORY:
            name, batch = ALLOCATIONS.name, events.allocations(chunk)
        else:
            name, batch = COUNTERS.name, events.metrics(chunk, self._metrics)
        self._tally.bad[table] += bad
        return name, batch

    def _spool(self, table: str, batch: Batch) -> None:
        for rank, part in self._by_rank(batch):
            if part.rows.count:
                place = self._spool_folder(rank)
                place.mkdir(exist_ok=True)
                part_files.write_batches(place, self._part, {table: part})
        self._part += 1

    def _by_rank(self, batch: Batch) -> Iterator[tuple[int | None, Batch]]:
        """Split a batch by rank; processes without a rank, such as launchers, belong to the lowest."""
        if len(set(self._ranks.values())) < 2 or C.PID not in batch.rows.columns:
            yield self._lowest, batch
            return
        pids, place = np.unique(batch.rows.integers(C.PID), return_inverse=True)
        ranks = np.array([self._ranks.get(pid, self._lowest) for pid in pids.tolist()])[place]
        for rank in np.unique(ranks):
            yield int(rank), Batch(batch.rows.take(np.flatnonzero(ranks == rank)), batch.texts)

    @property
    def _lowest(self) -> int | None:
        return min(self._ranks.values(), default=None)

    def _spool_folder(self, rank: int | None) -> Path:
        return self._directory / f"rank-{rank or 0:05d}"

    def traces(self, path: Place) -> list[Trace]:
        """Return the spooled traces."""
        top, notes = top_level(self._tables), diagnostics(self._tables)
        name, reason = file_name(path), no_device_reason(notes, self._tables)
        reading = [*_diagnostics(name, top, self._tally)]
        if unread := ", ".join(_unread(self._tables)):
            text = f"{name}: tables of events that are not read: {unread}"
            reading.append(Diagnostic(Level.INFO, "unread_tables", text))
            reason = f"{reason}; not read: {unread}"
        if rows.NVTX not in self._tally.rows:
            text = f"{name}: no NVTX ranges were recorded, so ops and steps are unknown: trace nvtx too"
            reading.append(Diagnostic(Level.INFO, "no_ranges", text))
        if not self._strings and not self._tally.rows.keys().isdisjoint({rows.KERNEL, rows.RUNTIME}):
            text = f"{name}: table {rows.STRINGS} is missing or empty, so kernels and calls have no name"
            reading.append(Diagnostic(Level.WARN, "no_names", f"{text}; export the report again"))
        simulated = Diagnostic(Level.INFO, "simulated", f"{name}: written by a simulator, not recorded")
        error = UnusableInputError(
            f"{name} has no events that are read: {reason}",
            hint="profile again with `nsys profile --trace=cuda,nvtx,osrt`",
        )
        ranks: list[int | None] = [*sorted(set(self._ranks.values()))]
        traces: list[Trace] = []
        for rank in ranks or [None]:
            self._spool_folder(rank).mkdir(exist_ok=True)
            declared = None if rank is None else Distributed(rank=rank, world_size=len(ranks))
            tool_notes = [] if traces else notes  # of the whole export, so only once
            traces.append(
                Trace(
                    path=path,
                    directory=self._spool_folder(rank),
                    top=msgspec.structs.replace(top, distributed=declared),
                    notes=(*[simulated] * top.simulated, *tool_notes, *reading),
                    empty=error,
                    no_device_work=reason,
                )
            )
        return traces


def _unread(tables: Tables) -> list[str]:
    """Return the names of tables with times and rows that are not read."""
    others = tables.names() - {*_WANTED, "DIAGNOSTIC_EVENT"}
    timed = {name: tables.columns(name) & {"start", "timestamp"} for name in sorted(others)}
    return [name for name, times in timed.items() if times and tables.records(name, sorted(times))]


_WANTED = {
    **events.DEVICE_TABLES,
    **events.HOST_TABLES,
    rows.MEMORY: events.ALLOCATED,
    rows.VENDOR_METRICS: events.METRICS,
}
_INSTANTS = {rows.MEMORY: "start", rows.VENDOR_METRICS: "timestamp"}  # time columns of tables of instants
