"""Link device rows to the calls and ops that launched them, and find idle intervals of devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np

from tracekit.ingest.link.nesting import Ints
from tracekit.ingest.link.steps import HostWindow
from tracekit.ingest.spool import part_files
from tracekit.ingest.spool.part_files import SpooledTable
from tracekit.ingest.spool.rows import NONE, Batch, Column, Rows
from tracekit.ingest.spool.text_columns import NO_STRINGS
from tracekit.ingest.spool.window_reader import SortedColumns, windows
from tracekit.schema import BUSY_KINDS, C, DeviceKind

HELD = 1 << 18
"""Rows of a lookup that are kept in memory before they are written to a file."""


REPEATED = -2
"""Value of a key that several rows have."""


class Lookup:
    """Map from integer keys to values, in memory while small, then in sorted files; the first key wins.

    Device rows refer to calls anywhere in the trace, so the calls of all windows have to be found; in files
    their number takes no memory.
    """

    def __init__(self, directory: Path, name: str, *, columns: int, is_unique: bool = False) -> None:
        """Create an empty map.

        Args:
            directory: Folder of its files.
            name: Unique name of its files.
            columns: Number of values per key.
            is_unique: Whether a key of several calls has the values `REPEATED`, not those of the first
                one; the first value is then the row of the call, the last one its parent.
        """
        self.is_unique = is_unique
        self._directory, self._name = directory, name
        self._held: list[list[Ints]] = []
        self._none: list[Ints] = [np.empty(0, np.int64)] * (columns + 1)
        self._parts = 0
        self._sorted: list[Ints] = []
        self._paths: list[Path] = []

    def add(self, keys: Ints, *values: Ints) -> None:
        """Add rows; not allowed after the first `find`."""
        self._held.append([keys, *values])
        if sum(len(held) for held, *_ in self._held) >= HELD:
            self._spool_rows()

    def find(self, wanted: Ints) -> list[Ints]:
        """Return the columns of values of keys; -1 for unknown keys."""
        keys, *values = self._read()
        if not len(keys):
            return [np.full(len(wanted), NONE, np.int64) for _ in values]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        missing = keys[place] != wanted
        return [np.where(missing, NONE, column[place]) for column in values]

    def _take_sorted(self) -> list[Ints]:
        """Return the rows in memory, sorted by key, and clear them."""
        parts = self._held or [self._none]
        self._held = []
        return self._first_rows([np.concatenate(column) for column in zip(*parts, strict=True)])

    def _spool_rows(self) -> None:
        columns = self._take_sorted()
        if len(columns[0]):
            named = {f"c{place}": Column(column) for place, column in enumerate(columns)}
            batch = Batch(Rows(count=len(columns[0]), columns=named))
            part_files.write_batches(self._directory, self._parts, {self._name: batch})
            self._parts += 1

    def _read(self) -> list[Ints]:
        """Return all rows, sorted; mapped from files, so that only what is searched takes memory."""
        if self._parts:
            self._spool_rows()
            self._paths, self._parts = self._merge_parts(), 0
        if self._paths:
            return [np.asarray(np.memmap(path, np.int64, "r")) for path in self._paths]
        self._sorted = self._sorted or self._take_sorted()
        return self._sorted

    def _merge_parts(self) -> list[Path]:
        spooled = SpooledTable(self._directory, self._name)
        paths = [self._directory / f"{self._name}.{name}.sorted" for name in spooled.names]
        by_key = SortedColumns(table=spooled, columns=spooled.names)
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for window in windows([by_key]):
                (rows,) = window.rows  # with all rows of a key, as each part has it once
                columns = self._first_rows([rows.integers(name) for name in spooled.names])
                for file, column in zip(files, columns, strict=True):
                    column.tofile(file)
        return paths

    def _first_rows(self, columns: list[Ints]) -> list[Ints]:
        """Return the first row of each key, sorted: by a stable sort, that which was added first."""
        order = np.argsort(columns[0], kind="stable")
        keys = columns[0][order]
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        rows = [column[order[first]] for column in columns]
        if self.is_unique and len(first) < len(keys):
            call, parent = columns[1][order], columns[-1][order]
            outer = np.repeat(call[first], np.diff(first, append=len(keys)))
            # A call of the driver inside one of the runtime may have its id: the outer one counts.
            is_other = (call != outer) & (parent != outer)
            repeated = np.logical_or.reduceat(is_other | (call == REPEATED), first)
            return [rows[0], *(np.where(repeated, REPEATED, values) for values in rows[1:])]
        return rows


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """Row ids of the launching call and op of each device row; -1 if unknown."""

    call: Ints  # launching call
    op: Ints  # innermost op around the call
    # step of the launching call; without a call, the step at the row's start, but -1 if the row has a
    # correlation id below those of all calls: it was launched before the capture
    step: Ints


class Launchers:
    """Calls and ops of a host that can launch device work.

    Attributes:
        count: Number of calls.
        unclear: Number of device rows whose correlation id several calls have.
    """

    def __init__(self, directory: Path, processes: Ints | None) -> None:
        """Create without calls.

        Args:
            directory: Folder of temporary files.
            processes: Sorted process ids, if correlation ids are unique per process only.
        """
        self.count = self.unclear = 0
        self._processes = processes
        self._least = np.iinfo(np.int64).max
        # A profiler gives each id once, so that with two recordings in one file the call is not known.
        self._calls = Lookup(directory, "calls", columns=4, is_unique=processes is None)
        self._ops = Lookup(directory, "ops", columns=1)

    def add(self, window: HostWindow) -> None:
        """Add the calls and ops of the next window."""
        rows, ids = window.rows, window.rows.integers(C.CORRELATION_ID)
        calls = np.flatnonzero(window.is_call & (ids > 0))
        self.count += len(calls)
        self._least = min(self._least, int(ids[calls].min(initial=self._least)))
        keys = self._keys(ids.take(calls), rows.integers(C.PID).take(calls))
        columns = window.op, window.columns[C.STEP], window.columns[C.PARENT_ROW]
        self._calls.add(keys, window.first + calls, *(values.take(calls) for values in columns))
        external = rows.integers(C.EXTERNAL_ID)  # of an op: the number that its device rows refer to
        ops = np.flatnonzero(window.is_op & (external > 0))
        self._ops.add(external.take(ops), window.first + ops)

    def of(self, rows: Rows, step_at_start: Ints) -> Launches:
        """Link device rows, with the step at each start; a call may launch many rows, or be missing."""
        # CUPTI gives a kernel the correlation id of its call; Kineto adds the id of the op around it, which
        # still links kernels whose call was not recorded
        call, op, step, _ = self._calls.find(
            self._keys(rows.integers(C.CORRELATION_ID), rows.integers(C.PID))
        )
        self.unclear += int((call == REPEATED).sum())
        lost = np.flatnonzero(op == NONE)
        external = rows.integers(C.EXTERNAL_ID)[lost]
        lost, external = lost[external > 0], external[external > 0]
        if len(lost):
            op[lost] = self._ops.find(external)[0]
        call, op, step = (np.maximum(values, NONE) for values in (call, op, step))
        # Ids increase: a smaller one than that of any call was given out before the capture.
        ids = rows.integers(C.CORRELATION_ID)
        step_at_start = np.where((ids > 0) & (ids < self._least) & (self.count > 0), NONE, step_at_start)
        return Launches(call=call, op=op, step=np.where(call == NONE, step_at_start, step))

    def _keys(self, ids: Ints, pids: Ints) -> Ints:
        """Return keys that are unique over processes; -1 without an id, or with an unknown process."""
        if self._processes is None:
            return np.where(ids > 0, ids, NONE)
        if not len(self._processes):
            return np.full(len(ids), NONE, np.int64)
        # One number of both: the id times the number of processes, plus the number of the process.
        number = np.minimum(np.searchsorted(self._processes, pids), len(self._processes) - 1)
        is_known = (ids > 0) & (self._processes[number] == pids)
        return np.where(is_known, ids * len(self._processes) + number, NONE)


_WANTED = (C.KIND, C.DEVICE, C.START_NS, C.DUR_NS)


def idle_batches(spooled: SpooledTable) -> Iterator[Batch]:
    """Yield batches of idle rows of the spooled device table.

    The window of a device is from the first start to the last end of its work.
    """
    occupying = spooled.texts.get(C.KIND, NO_STRINGS).among(BUSY_KINDS)
    covered: dict[int, int] = {}  # latest end by device, as a gap may span windows
    for window in windows([SortedColumns(table=spooled, columns=_WANTED)]):
        (rows,) = window.rows
        busy = rows.take(np.flatnonzero(occupying[rows.integers(C.KIND)]))
        start, length = busy.integers(C.START_NS), busy.integers(C.DUR_NS)
        gaps = find_gaps(busy.integers(C.DEVICE), start, start + length, covered)
        if len(gaps[0]):
            yield _idle_batch(*gaps)


def find_gaps(device: Ints, start: Ints, end: Ints, covered: dict[int, int]) -> tuple[Ints, Ints, Ints]:
    """Return start, end and device of the gaps in a window, and update the time covered so far.

    Args:
        device: Device of each interval.
        start: Starts, ns.
        end: Ends, ns.
        covered: Latest end by device.
    """
    order = np.lexsort((start, device))
    device, start, end = device[order], start[order], end[order]
    first = np.flatnonzero(np.diff(device, prepend=NONE - 1) != 0)
    # An interval for all earlier work of a device, which covers the time up to here.
    earlier = np.array([covered.get(number, NONE) for number in device[first].tolist()], np.int64)
    first, earlier = first[earlier != NONE], earlier[earlier != NONE]
    start, end = np.insert(start, first, earlier), np.insert(end, first, earlier)
    device = np.insert(device, first, device[first])
    # The largest end so far of each device, which is numbered so that the next device starts anew.
    by_end, count = np.argsort(end, kind="stable"), max(1, len(end))
    rank = np.empty_like(by_end)
    rank[by_end] = np.arange(len(end))
    number = np.cumsum(np.diff(device, prepend=device[:1]) != 0)
    reach = end[by_end[np.maximum.accumulate(number * count + rank) % count]]
    is_last = np.diff(number, append=len(device)) != 0
    covered.update(zip(device[is_last].tolist(), reach[is_last].tolist(), strict=True))
    gap = np.flatnonzero((number[1:] == number[:-1]) & (start[1:] > reach[:-1]))
    return reach[gap], start[gap + 1], device[gap]


def _idle_batch(start: Ints, end: Ints, device: Ints) -> Batch:
    kind = np.zeros(len(start), np.int64)
    numbers = {C.KIND: kind, C.NAME: kind, C.DEVICE: device, C.START_NS: start, C.DUR_NS: end - start}
    columns = {name: Column(values) for name, values in numbers.items()}
    texts = {name: [DeviceKind.IDLE.encode()] for name in (C.KIND, C.NAME)}
    return Batch(Rows(count=len(start), columns=columns), texts)
