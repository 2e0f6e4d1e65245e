"""Decode traces of any format to their spools, and import the traces of a job on this machine.

`decode` reads each trace and *closes* it: it adds the idle rows, which follow from all device rows, and
measures what the trace contains. Then `write_tables` links the rows and writes them. `cluster` does the same
with `read` and `close_traces`, a trace per task.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from msgspec import structs

from tracekit.errors import TracekitError
from tracekit.ingest import nsys
from tracekit.ingest.importer.execution import Decoded, Destination, Failed, Progress, Size, Written
from tracekit.ingest.importer.trace_writer import write
from tracekit.ingest.jobs.ranks import from_names
from tracekit.ingest.jobs.sources import Source
from tracekit.ingest.kineto import merged
from tracekit.ingest.kineto import reader as kineto
from tracekit.ingest.kineto.scan.loader import Scanners, scanners
from tracekit.ingest.kineto.source import convert_errors, file_name
from tracekit.ingest.link.launches import idle_batches
from tracekit.ingest.link.trace import Trace
from tracekit.ingest.pool import Pool, cores, open_pool
from tracekit.ingest.spool import part_files
from tracekit.ingest.spool.part_files import SpooledTable
from tracekit.ingest.spool.rows import Batch
from tracekit.ingest.spool.text_columns import LATEST_NS
from tracekit.runs.meta import Diagnostic, Level
from tracekit.runs.store import Store
from tracekit.schema import DEVICE_INTERVALS, HOST_INTERVALS, C, HostKind
from tracekit.storage import Place

MAX_CAPTURE_NS = 86_400_000_000_000
"""No capture lasts a day: rows a day away from most others, or a day long, have a time that cannot be."""
THREAD_BYTES = 1 << 20
"""Bytes of text, of all traces together, from which more than one thread decodes."""
POOL_BYTES = 24 << 20
"""Bytes of text from which worker processes save more time than their start takes."""
_FIRST_IDLE_PART = 900_000
"""Number of the first spool part of idle rows, larger than that of any decoded part."""
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of the file system that only writing raises."""

Decoders: TypeAlias = tuple[Pool, Scanners]
"""Pool that decodes chunks, and loader of the compiled scanner."""


def close(trace: Trace) -> Size | None:
    """Add the idle intervals to a decoded trace and return its size; None if it has no interval."""
    decoded = SpooledTable(trace.directory, DEVICE_INTERVALS.name)
    for number, idle in enumerate(idle_batches(decoded)):
        part_files.write_batches(trace.directory, _FIRST_IDLE_PART + number, {DEVICE_INTERVALS.name: idle})
    # Read again, as the parts of idle rows belong to the device table now.
    tables = [SpooledTable(trace.directory, table.name) for table in (HOST_INTERVALS, DEVICE_INTERVALS)]
    host, device = (table.extents for table in tables)
    if not host and not device:
        return None
    base = trace.top.base_ns  # spooled times count from here
    first, last = min(part.first for part in host + device), max(part.end for part in host + device)
    return Size(
        host=sum(part.rows for part in host),
        device=sum(part.rows for part in device),
        first_ns=first + base,
        last_ns=last + base,
        is_host_only=not device and str(HostKind.RUNTIME) not in tables[0].texts[C.KIND].values,
    )


@contextmanager
def convert_read_errors(path: Place) -> Iterator[None]:
    """Convert an error of the file system to one that names the file, unless writing the spool raised it.

    Decoding reads the trace and writes the spool in one loop, so only the kind of an error tells them apart.

    Raises:
        UnusableInputError: The file cannot be read.
        OSError: The spool cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _WRITE_ERRORS:
            raise
        with convert_errors(path):  # raised once more inside of it, which converts the error
            raise


def read(path: Place, directory: Path, decoders: Decoders, progress: Callable[[int], None]) -> list[Trace]:
    """Decode a file to the spool.

    Args:
        path: The file.
        directory: An existing folder for the batches.
        decoders: Pool and scanner.
        progress: Called with the number of bytes of the file read so far.

    Returns:
        One trace, or one for each rank that the file holds.

    Raises:
        UnusableInputError: The file is not a trace.
    """
    if nsys.is_nsys(path):
        from tracekit.ingest.nsys import reader  # what a trace of torch.profiler never needs

        return reader.read(path, directory, progress)
    pool, fast = decoders
    trace = kineto.read(path, directory, pool, progress, scanners=fast)
    if not merged.may_hold_ranks(trace):
        return [trace]
    division = merged.split_ranks(path, directory, from_names)
    notes = (*(note for note in trace.notes if note.code in _OF_FILE), *division.notes)
    ranks = []
    for rank, file in division.files.items():
        folder = directory / f"rank-{rank:05d}"
        folder.mkdir()
        of_rank = kineto.read(file, folder, pool, lambda _done: None, scanners=fast)
        of_rank_notes = (note for note in of_rank.notes if note.code not in _OF_FILE)
        ranks.append(structs.replace(of_rank, path=path, notes=(*notes, *of_rank_notes)))
        notes = ()  # those of the file appear once, with its first rank
    return ranks or [trace]


_OF_FILE = (
    *("truncated", "dropped_events", "repaired_events"),
    *("trailing_data", "second_list", "nested_events"),
)
"""Diagnostics of the text of a file: those of a merged one count, not those of the copies of its ranks."""


def close_traces(source: Source, traces: Sequence[Trace], identity: dict[str, Any]) -> list[Decoded | Failed]:
    """Add the idle intervals to the traces of a source; a trace without intervals fails.

    Args:
        source: The source.
        traces: Its decoded traces: several if the file holds several ranks.
        identity: Identity of the file, as it was when it was read.
    """
    outcomes: list[Decoded | Failed] = []
    for number, decoded in enumerate(traces):
        trace = _without_far_rows(decoded)
        size = close(trace)
        outcomes.append(
            Failed(source=source, error=trace.empty)
            if size is None
            else Decoded(source=source, trace=trace, size=size, identity=identity, number=number)
        )
    return outcomes


def _without_far_rows(trace: Trace) -> Trace:
    """Return the trace with a note on the rows that it lost because their times cannot be, if any."""
    counts = _discard_far_rows(trace.directory)
    if not counts:
        return trace
    listed = " and ".join(f"{count} rows of {table}" for table, count in counts.items())
    where = "at time 0 before all others, over a day long, or over a day from most others"
    message = f"{file_name(trace.path)}: {listed} were set aside, as their times cannot be: {where}"
    return structs.replace(trace, notes=(*trace.notes, Diagnostic(Level.WARN, "far_times", message)))


def _discard_far_rows(directory: Path) -> dict[str, int]:
    """Discard the rows of a spool at times that cannot be; return how many of each table.

    Profilers write lost records of a GPU at time 0: https://github.com/pytorch/kineto/issues/109.
    """
    tables = [SpooledTable(directory, name) for name in (HOST_INTERVALS.name, DEVICE_INTERVALS.name)]
    extents = [extent for table in tables for extent in table.extents]
    if not extents:
        return {}
    is_far = max(extent.end for extent in extents) - min(extent.first for extent in extents) >= MAX_CAPTURE_NS
    has_lost = _has_lost(*tables)
    if not (is_far or has_lost):
        return {}
    # The median of distinct times, as all lost records have the same one: it is right however many are lost.
    times = np.unique(np.concatenate([table.times(part) for table in tables for part in table.parts]))
    middle = int(times[len(times) // 2])
    # Where no row is shorter than a day, length does not tell wrong rows from right ones: none would be left.
    longest_ns = MAX_CAPTURE_NS if any(_has_short(table) for table in tables) else LATEST_NS
    discarded = {
        table.name: _discard(
            table,
            middle,
            longest_ns,
            has_lost=has_lost and table.name == DEVICE_INTERVALS.name,
        )
        for table in tables
    }
    return {name: count for name, count in discarded.items() if count}


def _has_lost(host: SpooledTable, device: SpooledTable) -> bool:
    """Whether device rows are at time 0, before all others; reads only the parts that begin there."""
    zero = [part for part in device.parts if device.extents[part].first == 0]
    others = [part.first for part in host.extents]
    others += [part.first for part in device.extents if part.first != 0]
    for part in zero:
        times = device.times(part)
        others += times[times > 0][:1].tolist()
    return bool(zero) and min(others, default=0) > 0


def _has_short(table: SpooledTable) -> bool:
    """Whether a row lasts less than a day."""
    parts = (table.read([table.whole_part(part)], [C.DUR_NS]) for part in table.parts)
    return any((rows.integers(C.DUR_NS) < MAX_CAPTURE_NS).any() for rows in parts)


def _discard(table: SpooledTable, middle: int, longest_ns: int, *, has_lost: bool) -> int:
    """Write the parts of a table again without rows that are far from an instant, too long, or lost.

    Args:
        table: The table.
        middle: Instant near which most rows are, ns.
        longest_ns: Duration from which rows are too long, ns.
        has_lost: Whether rows at time 0 without a duration are lost records.

    Returns:
        The number of discarded rows.
    """
    count = 0
    for part, extent in enumerate(table.extents):
        is_near = abs(extent.first - middle) < MAX_CAPTURE_NS and abs(extent.end - middle) < MAX_CAPTURE_NS
        if is_near and not (has_lost and extent.first == 0):
            continue
        whole = table.read([table.whole_part(part)], table.names)
        start, duration = whole.integers(C.START_NS), whole.integers(C.DUR_NS)
        is_lost = has_lost & (start == 0) & (duration == 0)
        is_right = (np.abs(start - middle) < MAX_CAPTURE_NS) & (duration < longest_ns) & ~is_lost
        rows = whole.take(np.flatnonzero(is_right))
        count += whole.count - rows.count
        texts = {name: strings.encoded for name, strings in table.texts.items()}
        table.replace(part, Batch(rows, texts))
    return count


def decode(
    store: Store, spool: Path, progress: Progress, sources: Sequence[Source]
) -> list[Decoded | Failed]:
    """Decode traces, one after the other, each on all cores, and close them.

    Args:
        store: Store of the new run, which errors of writing name.
        spool: An existing folder; each source gets a folder in it.
        progress: Called with the name of a file, its bytes read so far, and its size in bytes.
        sources: The traces.

    Returns:
        The traces of each source, or its error, in the order of the sources: a trace that cannot be read does
        not stop the others.
    """
    # Exports of Nsight Systems are tables, which need neither pool nor scanner.
    sizes = [source.text_bytes for source in sources if not nsys.is_nsys(source.path)]
    total_bytes = sum(sizes) if 0 not in sizes else POOL_BYTES  # 0: a stream, which may be of any size
    workers = cores() if total_bytes >= THREAD_BYTES else 1
    outcomes: list[Decoded | Failed] = []
    with open_pool(workers, processes=total_bytes >= POOL_BYTES) as pool, scanners(total_bytes) as fast:
        for number, source in enumerate(sources):
            report = partial(_report, progress, file_name(source.path), source.size)
            with store.convert_write_errors():  # `convert_read_errors` leaves errors of the spool alone
                try:
                    with convert_read_errors(source.path):
                        directory = spool / f"{number:05d}"
                        directory.mkdir()
                        traces = read(source.path, directory, (pool, fast), report)
                        identity = source.identity
                except TracekitError as error:
                    outcomes.append(Failed(source=source, error=error))
                else:  # outside of `convert_read_errors`: closing only reads and writes the spool
                    outcomes += close_traces(source, traces, identity)
    return outcomes


def _report(progress: Progress, name: str, size: int, done: int) -> None:
    """Report progress, in bytes; `done` comes last because it alone varies during a file."""
    progress(name, done, size)


def write_tables(tasks: Sequence[tuple[Decoded, Destination]]) -> list[Written | Failed]:
    """Link traces and write their tables, in order.

    No trace is returned as `Failed`, as `cluster` returns that of a lost worker: an error here is one of the
    disk, which concerns all traces, so it is raised.
    """
    return [Written(linked=write(decoded.trace, place)) for decoded, place in tasks]
