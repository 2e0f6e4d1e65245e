"""Decode a trace of any format to its spool, complete it with idle intervals, and write its tables."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.ingest import nsys, sources, spool
from tracekit.ingest.executor import Decoded, Destination, Failed, Linked, Size
from tracekit.ingest.kineto import reader as kineto
from tracekit.ingest.kineto.scan.loader import Scanners
from tracekit.ingest.link import graphs, replays, serving
from tracekit.ingest.link.launches import Launchers, idle_batches
from tracekit.ingest.link.steps import PHASES, Host, HostWindow, Steps, find_steps
from tracekit.ingest.nesting import Trace
from tracekit.ingest.outline import Ordered, Outline, outlined, windows
from tracekit.ingest.pool import Pool
from tracekit.ingest.rows import NONE, Rows, compact, counter_order, device_order, numbers
from tracekit.ingest.sources import Source
from tracekit.ingest.spool import Index
from tracekit.ingest.text_columns import NO_STRINGS, Strings
from tracekit.ingest.write import TableFile, write_table
from tracekit.schema import (
    ALLOCATIONS,
    COUNTERS,
    DEVICE_INTERVALS,
    HOST_INTERVALS,
    STEPS,
    C,
    DeviceKind,
    Table,
)
from tracekit.storage import Place

if TYPE_CHECKING:
    Ints = npt.NDArray[np.integer[Any]]

_DEVICE = (C.PID, C.EXTERNAL_ID, *(column.name for column in DEVICE_INTERVALS.columns))
_PHASES = [phase.encode() for phase in PHASES]


def write(trace: Trace, place: Destination) -> Linked:
    """Link a completed trace and write its tables."""
    return _Writer(trace, place).write()


class _Writer:
    """Write one trace: link windows in this thread, encode tables in others."""

    def __init__(self, trace: Trace, place: Destination) -> None:
        self._directory, self._place, self._nest = trace.directory, place, trace.nest
        self._spooled = spool.Index(trace.directory)
        self._zero = place.zero_ns - trace.top.base_ns

    def write(self) -> Linked:
        host, device = self._outlined(HOST_INTERVALS), self._outlined(DEVICE_INTERVALS)
        steps = find_steps(host, self._place.steps, self._place.serving)
        scoped = C.PID in device.spooled.names
        launchers = Launchers(self._directory, host.spooled.distinct(C.PID) if scoped else None)
        self._write_steps(steps)
        self._write_counters()
        with ExitStack() as files:  # one is still encoded while the next is linked
            replaying = self._write_host(host, steps, launchers, files)
            linked = self._write_device(device, launchers, steps, files, replaying)
            if self._place.part is None:  # alone: it keeps its place, and is not written again
                spool.clear(self._directory)
            return linked

    def _outlined(self, table: Table) -> Outline:
        return outlined(self._spooled.table(table.name))

    def _file(self, table: Table, texts: dict[str, Strings]) -> TableFile:
        values = {name: strings.encoded for name, strings in texts.items()}
        return TableFile(table, self._place.path(table), values=values, zero_ns=self._zero)

    def _rank(self, rows: Rows) -> dict[str, Ints]:
        return {C.RANK: np.full(rows.count, self._place.rank)}

    def _write_host(self, host: Outline, steps: Steps, launchers: Launchers, files: ExitStack) -> Ints:
        """Write the host rows; return the row ids of the calls that launch graphs."""
        events = self._outlined(ALLOCATIONS)
        hosts = files.enter_context(self._file(HOST_INTERVALS, host.texts))
        hosts.values |= {C.PHASE: _PHASES, C.MODULE: host.texts.get(C.NAME, NO_STRINGS).encoded}
        allocations = files.enter_context(self._file(ALLOCATIONS, {}))
        of_graph = host.texts.get(C.NAME, NO_STRINGS).matching(graphs.launches_graph)
        replaying = [np.empty(0, np.int64)]
        for window in Host(host, events, steps, self._nest).windows(self._place.host_row):
            hosts.add(window.rows, self._host_columns(window))
            found = {**self._rank(window.allocations), C.OP_ROW: window.allocating}
            allocations.add(window.allocations, found)
            launchers.add(window)
            if of_graph.any():
                replaying.append(window.first + np.flatnonzero(of_graph[window.rows.integers(C.NAME)]))
        hosts.finish()
        allocations.finish()
        return np.concatenate(replaying)

    def _host_columns(self, window: HostWindow) -> dict[str, Ints]:
        return {
            **self._rank(window.rows),
            C.ROW_ID: np.arange(window.first, window.first + window.rows.count),
            C.STEP: window.step,
            C.PARENT_ROW: window.parent,
            C.DEPTH: window.depth,
            C.PHASE: window.phase,
            C.MODULE: window.module,
        }

    def _write_device(
        self, device: Outline, launchers: Launchers, steps: Steps, files: ExitStack, replaying: Ints
    ) -> Linked:
        captured = self._attributed(device, launchers, replaying) if len(replaying) else None
        idle = device.texts.get(C.KIND, NO_STRINGS).among([DeviceKind.IDLE])
        first, launched, unlinked = self._place.device_row, 0, 0
        file = files.enter_context(self._file(DEVICE_INTERVALS, device.texts))
        file.values |= captured.texts if captured else {}
        for rows in _sorted(device, _DEVICE, device_order):
            found = launchers.of(rows, steps.at(rows.integers(C.START_NS)))
            work = ~idle[rows.integers(C.KIND)]
            launched += int(work.sum())
            unlinked += int((work & (found.call < 0)).sum())
            columns: dict[str, Ints] = {
                **self._rank(rows),
                C.ROW_ID: np.arange(first, first + rows.count),
                C.STEP: found.step,
                C.LAUNCH_ROW: found.call,
                C.OP_ROW: found.op,
                **(captured.at(first, rows.count) if captured else {}),
            }
            file.add(rows, columns)
            first += rows.count
        file.finish()
        return Linked(launched, unlinked, launchers.count, captured.outcome if captured else None)

    def _attributed(self, device: Outline, launchers: Launchers, replaying: Ints) -> graphs.Attributed:
        """Attribute what graph launches ran to the ops of the captures."""
        kinds = device.texts.get(C.KIND, NO_STRINGS)
        found, first = [], self._place.device_row
        for rows in _sorted(device, _DEVICE, device_order):
            call = launchers.of(rows, np.full(rows.count, NONE)).call
            work = kinds.among(replays.JOINED_KINDS)[rows.integers(C.KIND)]
            found.append(replays.replays(rows, first, call, np.flatnonzero(work & np.isin(call, replaying))))
            first += rows.count
        return graphs.attribute(
            replays.joined(found), self._place.captures, device.texts.get(C.NAME, NO_STRINGS), kinds
        )

    def _write_steps(self, steps: Steps) -> None:
        if not len(steps.number):
            return
        columns = {
            C.RANK: numbers(np.full(len(steps.number), self._place.rank, np.int32)),
            C.STEP: numbers(steps.number),
            C.NAME: compact(np.arange(len(steps.name)), [name.encode() for name in steps.name]),
            C.START_NS: numbers(steps.start - self._zero),
            C.DUR_NS: numbers(steps.end - steps.start),
            **serving.columns(steps.batches, len(steps.number)),
        }
        write_table(pa.table(columns, schema=STEPS.arrow), STEPS, self._place.path(STEPS))

    def _write_counters(self) -> None:
        counters = self._outlined(COUNTERS)
        with self._file(COUNTERS, counters.texts) as file:
            for rows in _sorted(counters, counters.spooled.names, counter_order):
                file.add(rows, {})


def _sorted(table: Outline, columns: Sequence[str], order: Callable[[Rows], Ints]) -> Iterator[Rows]:
    for window in windows([Ordered(table=table, columns=columns, order=order)]):
        yield window.rows[0]


_IDLE_PART = 900_000
"""Number of the first spool part of idle rows, larger than that of any decoded part."""


def close(trace: Trace) -> Size | None:
    """Add the idle intervals to a decoded trace and return its size; None if it has no interval."""
    decoded = Index(trace.directory)
    for number, idle in enumerate(idle_batches(decoded.table(DEVICE_INTERVALS.name))):
        spool.write_batches(trace.directory, _IDLE_PART + number, {DEVICE_INTERVALS.name: idle})
    host = decoded.table(HOST_INTERVALS.name).heads
    work = Index(trace.directory).table(DEVICE_INTERVALS.name).heads
    if not host and not work:
        return None
    base = trace.top.base_ns
    first, last = min(each.first for each in host + work), max(each.end for each in host + work)
    return Size(sum(each.rows for each in host), sum(each.rows for each in work), first + base, last + base)


if TYPE_CHECKING:
    Decoders = tuple[Pool, Scanners]
    """Pool that decodes chunks, and loader of the compiled scanner."""

_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of the file system that only writing raises."""


@contextmanager
def reading(path: Place) -> Iterator[None]:
    """Convert an error of the file system to one that names the file, unless writing the spool raised it.

    Raises:
        UnusableInputError: The file cannot be read.
        OSError: The spool cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _WRITING:
            raise
        with sources.reading(path):
            raise


def read(path: Place, directory: Path, decoders: Decoders, progress: Callable[[int], None]) -> list[Trace]:
    """Decode a file to the spool.

    Args:
        path: The file.
        directory: An existing folder for the batches.
        decoders: Pool and scanner.
        progress: Called with the bytes of the file read so far.

    Returns:
        One trace, or one for each rank that the file holds.

    Raises:
        UnusableInputError: The file is not a trace.
    """
    if nsys.is_nsys(path):
        from tracekit.ingest.nsys import reader  # what a trace of torch.profiler never needs

        return reader.read(path, directory, progress)
    pool, fast = decoders
    return [kineto.read(path, directory, pool, progress, scanners=fast)]


def closed(source: Source, traces: Sequence[Trace], identity: dict[str, Any]) -> list[Decoded | Failed]:
    """Add the idle intervals to the traces of a source; a trace without intervals fails."""
    found: list[Decoded | Failed] = []
    for number, trace in enumerate(traces):
        size = close(trace)
        found.append(
            Failed(source=source, error=trace.empty())
            if size is None
            else Decoded(source=source, trace=trace, size=size, identity=identity, number=number)
        )
    return found
