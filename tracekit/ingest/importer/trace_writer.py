"""Link a decoded trace and write its tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from tracekit import schema
from tracekit.errors import TracekitError
from tracekit.ingest.importer.execution import Destination, Linked
from tracekit.ingest.link import graphs, replays, serving
from tracekit.ingest.link.launches import Launchers
from tracekit.ingest.link.nesting import Ints
from tracekit.ingest.link.replays import Capture
from tracekit.ingest.link.steps import PHASES, Host, Steps, find_steps
from tracekit.ingest.link.trace import Trace
from tracekit.ingest.spool import part_files
from tracekit.ingest.spool.part_files import SpooledTable
from tracekit.ingest.spool.rows import NONE, Rows, counter_order, device_order, numbers
from tracekit.ingest.spool.text_columns import NO_STRINGS
from tracekit.ingest.spool.window_reader import SortedColumns, windows
from tracekit.ingest.write import TableFile, distinct_texts, write_table
from tracekit.schema import C, DeviceKind, Table
from tracekit.storage import Place

_DEVICE = (C.PID, C.EXTERNAL_ID, *(column.name for column in schema.DEVICE_INTERVALS.columns))
_OF_HOST = (C.STEP, C.PARENT_ROW, C.PHASE, C.MODULE)
_PHASES = [phase.encode() for phase in PHASES]


def write(trace: Trace, place: Destination) -> Linked:
    """Link a completed trace and write its tables."""
    return _Writer(trace, place).write()


class _Writer:
    """Write one trace: link windows in this thread, encode tables in others."""

    def __init__(self, trace: Trace, place: Destination) -> None:
        self._directory, self._place, self._nest = trace.directory, place, trace.nest
        self._source, self._rank = place.source, place.source.rank or 0
        self._zero = place.zero_ns - trace.top.base_ns

    def write(self) -> Linked:
        host, device = self._table(schema.HOST_INTERVALS), self._table(schema.DEVICE_INTERVALS)
        steps = find_steps(host, self._source.steps, self._source.serving)
        scoped = C.PID in device.names
        launchers = Launchers(self._directory, host.distinct(C.PID) if scoped else None)
        self._write_steps(steps)
        counters = self._table(schema.COUNTERS)
        with self._file(schema.COUNTERS, counters) as file:
            for rows in _sorted_windows(counters, counters.names, counter_order):
                file.add(rows, {})
        with ExitStack() as files:  # one is still encoded while the next is linked
            replaying = self._write_host(host, steps, launchers, files)
            linked = self._write_device(device, launchers, steps, files, replaying)
            if self._place.part is None:  # alone: it keeps its place, and is not written again
                part_files.clear(self._directory)
            return linked

    def _table(self, table: Table) -> SpooledTable:
        return SpooledTable(self._directory, table.name)

    def _file(self, table: Table, decoded: SpooledTable, computed: Collection[str] = ()) -> TableFile:
        """Create the file of a table, with the columns that were decoded and those computed."""
        values = {name: strings.encoded for name, strings in decoded.texts.items()}
        stored = {*decoded.names, *computed}
        return TableFile(table, self._place.path(table), stored=stored, values=values, zero_ns=self._zero)

    def _rank_column(self, rows: Rows) -> dict[str, Ints]:
        return {C.RANK: np.full(rows.count, self._rank)}

    def _write_host(self, host: SpooledTable, steps: Steps, launchers: Launchers, files: ExitStack) -> Ints:
        """Write the host rows; return the row ids of the calls that launch graphs."""
        events = self._table(schema.ALLOCATIONS)
        hosts = files.enter_context(self._file(schema.HOST_INTERVALS, host, _OF_HOST))
        hosts.values |= {C.PHASE: _PHASES, C.MODULE: host.texts.get(C.NAME, NO_STRINGS).encoded}
        allocations = files.enter_context(self._file(schema.ALLOCATIONS, events, [C.OP_ROW]))
        of_graph = host.texts.get(C.NAME, NO_STRINGS).matching(graphs.launches_graph)
        replaying = [np.empty(0, np.int64)]
        for window in Host(host, events, steps, self._nest).windows(self._place.host_row):
            hosts.add(window.rows, {**self._rank_column(window.rows), **window.columns})
            event_columns = {**self._rank_column(window.allocations), C.OP_ROW: window.allocating}
            allocations.add(window.allocations, event_columns)
            launchers.add(window)
            if of_graph.any():
                replaying.append(window.first + np.flatnonzero(of_graph[window.rows.integers(C.NAME)]))
        hosts.finish()
        allocations.finish()
        return np.concatenate(replaying)

    def _write_device(
        self, device: SpooledTable, launchers: Launchers, steps: Steps, files: ExitStack, replaying: Ints
    ) -> Linked:
        captured = self._attribute_graphs(device, launchers, replaying) if len(replaying) else None
        idle = device.texts.get(C.KIND, NO_STRINGS).among([DeviceKind.IDLE])
        first, launched, unlinked = self._place.device_row, 0, 0
        computed = {C.STEP, C.LAUNCH_ROW, C.OP_ROW, *(captured.columns if captured else ())}
        file = files.enter_context(self._file(schema.DEVICE_INTERVALS, device, computed))
        file.values |= captured.texts if captured else {}
        for rows in _sorted_windows(device, _DEVICE, device_order):
            links = launchers.of(rows, steps.at(rows.integers(C.START_NS)))
            work = ~idle[rows.integers(C.KIND)]
            launched += int(work.sum())
            unlinked += int((work & (links.call < 0)).sum())
            columns: dict[str, Ints] = {
                **self._rank_column(rows),
                C.ROW_ID: np.arange(first, first + rows.count),
                C.STEP: links.step,
                C.LAUNCH_ROW: links.call,
                C.OP_ROW: links.op,
                **(captured.at(first, rows.count) if captured else {}),
            }
            file.add(rows, columns)
            first += rows.count
        file.finish()
        outcome = captured.outcome if captured else None
        return Linked(
            device=launched,
            unlinked=unlinked,
            launches=launchers.count,
            graphs=outcome,
            unclear=launchers.unclear,
            renumbered=steps.renumbered,
            pause_ns=steps.pause_ns,
        )

    def _attribute_graphs(
        self, device: SpooledTable, launchers: Launchers, replaying: Ints
    ) -> graphs.Attributed:
        """Attribute what graph launches ran to the ops of the captures."""
        kinds = device.texts.get(C.KIND, NO_STRINGS)
        chunks, first = [], self._place.device_row
        for rows in _sorted_windows(device, _DEVICE, device_order):
            call = launchers.of(rows, np.full(rows.count, NONE)).call
            work = kinds.among(replays.JOINED_KINDS)[rows.integers(C.KIND)]
            chosen = np.flatnonzero(work & np.isin(call, replaying))
            columns = {name: rows.integers(column)[chosen] for name, column in replays.COLUMNS.items()}
            chunks.append(replays.Replays(row=first + chosen, call=call[chosen], **columns))
            first += rows.count
        launched = replays.concatenate(chunks)
        captures, unusable = _read_captures(self._source.captures if len(launched.row) else ())
        return graphs.attribute(launched, captures, device.texts.get(C.NAME, NO_STRINGS), kinds, unusable)

    def _write_steps(self, steps: Steps) -> None:
        if not len(steps.number):
            return
        columns = {
            C.RANK: numbers(np.full(len(steps.number), self._rank, np.int32)),
            C.STEP: numbers(steps.number),
            C.NAME: distinct_texts([name.encode() for name in steps.name]),
            C.START_NS: numbers(steps.start - self._zero),
            C.DUR_NS: numbers(steps.end - steps.start),
            **serving.columns(steps.batches, len(steps.number)),
        }
        rows = pa.table(columns, schema=schema.STEPS.arrow)
        write_table(rows, schema.STEPS, self._place.path(schema.STEPS))


def _sorted_windows(
    table: SpooledTable, columns: Sequence[str], order: Callable[[Rows], Ints]
) -> Iterator[Rows]:
    for window in windows([SortedColumns(table=table, columns=columns, order=order)]):
        yield window.rows[0]


def _read_captures(paths: Sequence[Place]) -> tuple[list[Capture], list[str]]:
    """Read the captures of some traces; return them, and why traces have none."""
    from tracekit.ingest.kineto.captures import read  # few traces have captures

    captures: list[Capture] = []
    unusable: list[str] = []
    for path in paths:
        try:
            captures += read(path)
        except TracekitError as error:
            unusable.append(error.message)
    return captures, unusable
