"""From one decoded trace to the tables of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.ingest import link, spool
from tracekit.ingest.idle import idle_batch
from tracekit.ingest.link import NONE
from tracekit.ingest.order import sorted_positions
from tracekit.ingest.spool import Parked
from tracekit.ingest.write import Coded, Computed, Extra, Rows, compact, write_groups, write_rows
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

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from tracekit.ingest.trace import Trace

    Ints = npt.NDArray[np.integer[Any]]

_IDLE_PART = 900_000
"""Number of the first part that idle rows are parked as: behind every decoded one."""
_IDLE_ROWS = 1 << 16
"""Idle rows of a part: writing reads the parts that a row group touches, whole."""


@dataclass(frozen=True)
class Size:
    """What a decoded trace holds.

    Attributes:
        host: Rows it will have in `host_intervals`.
        device: Rows it will have in `device_intervals`, idle ones included.
        first_ns: Its first instant, ns since the epoch.
        last_ns: Its last instant.
    """

    host: int
    device: int
    first_ns: int
    last_ns: int


def close(trace: Trace) -> Size | None:
    """Complete a decoded trace with its idle intervals, and measure it; None when it holds no interval."""
    device = Parked(trace.directory, DEVICE_INTERVALS.name)
    idle = idle_batch(device) if device.rows else None
    if idle is not None:
        for part, first in enumerate(range(0, idle.num_rows, _IDLE_ROWS)):
            rows = idle.slice(first, _IDLE_ROWS)
            spool.park(trace.directory, _IDLE_PART + part, {DEVICE_INTERVALS.name: rows})
    host = Parked(trace.directory, HOST_INTERVALS.name)
    starts = [table.integers(C.START_NS) for table in (host, device) if table.rows]
    if not starts:
        return None
    ends = [table.integers(C.DUR_NS) for table in (host, device) if table.rows]
    first = min(int(start.min()) for start in starts)
    last = max(int((start + length).max()) for start, length in zip(starts, ends, strict=True))
    rows = device.rows + (idle.num_rows if idle is not None else 0)
    return Size(host.rows, rows, first + trace.top.base_ns, last + trace.top.base_ns)


@dataclass(frozen=True)
class Place:
    """Where a trace's rows go.

    Attributes:
        directory: The run being written.
        part: Number of the part files; None when the trace is the whole run.
        rank: Its rank.
        host_row: Row id of its first host row.
        device_row: Row id of its first device row.
        zero_ns: The run's zero, ns since the epoch.
    """

    directory: Path
    part: int | None
    rank: int
    host_row: int
    device_row: int
    zero_ns: int

    def path(self, table: Table) -> Path:
        """The file that takes the trace's rows of a table."""
        if self.part is None:
            return self.directory / f"{table.name}.parquet"
        (self.directory / table.name).mkdir(exist_ok=True)
        return self.directory / table.name / f"part-{self.part:05d}.parquet"


@dataclass(frozen=True)
class Linked:
    """How much of a trace could be joined.

    Attributes:
        device: Device rows that a host should have launched (idle ones left out).
        unlinked: Those of them without a launching call.
        launches: Calls of the host that may have put work on a device.
    """

    device: int
    unlinked: int
    launches: int


def write(trace: Trace, place: Place) -> Linked:
    """Link a closed trace and write its tables."""
    return _Writer(trace, place).write()


class _Writer:
    """Writes one trace; the host's rows are let go before those of the device are read."""

    def __init__(self, trace: Trace, place: Place) -> None:
        self._trace = trace
        self._place = place
        self._zero = place.zero_ns - trace.top.base_ns

    def write(self) -> Linked:
        device = self._parked(DEVICE_INTERVALS)
        launchers = self._write_all_but(device)
        return self._write_device(device, launchers)

    def _parked(self, table: Table) -> Parked:
        return Parked(self._trace.directory, table.name)

    def _write_all_but(self, device: Parked) -> link.Launchers:
        parked = self._parked(HOST_INTERVALS)
        host = link.Host(parked)
        steps = link.find_steps(host)
        step = steps.at(host.start).astype(np.int32)
        self._write_host(host, parked, step)
        self._write_steps(steps)
        self._write_allocations(host)
        self._write_counters()
        return link.Launchers(host, steps, step, scoped=C.PID in device.names)

    def _rows(self, table: Table, parked: Parked, order: Ints, extra: Extra) -> None:
        if not len(order):
            return  # a table without rows has no file, nor a folder for its parts
        ranked: Extra = {C.RANK: lambda part: np.full(part.stop - part.start, self._place.rank), **extra}
        write_rows(Rows(table, parked, order, ranked, self._zero), self._place.path(table))

    def _host_row(self, position: Ints) -> Computed:
        """Row ids of host positions, -1 kept."""
        first = self._place.host_row
        return lambda part: np.where(position[part] >= 0, position[part].astype(np.int64) + first, NONE)

    def _write_host(self, host: link.Host, parked: Parked, step: Ints) -> None:
        extra: Extra = {
            C.ROW_ID: _row_ids(self._place.host_row),
            C.STEP: step,
            C.PARENT_ROW: self._host_row(host.parent),
            C.DEPTH: link.depths(host),
            C.PHASE: Coded(link.phases(host, parked), [str(value) for value in link.PHASES]),
            C.MODULE: Coded(link.modules(host), host.names.values),
        }
        self._rows(HOST_INTERVALS, parked, host.order, extra)

    def _write_device(self, parked: Parked, launchers: link.Launchers) -> Linked:
        kinds = parked.strings(C.KIND)
        order = _device_order(parked)
        launches = launchers.of(parked, order)
        extra: Extra = {
            C.ROW_ID: _row_ids(self._place.device_row),
            C.STEP: launches.step,
            C.LAUNCH_ROW: self._host_row(launches.call),
            C.OP_ROW: self._host_row(launches.op),
        }
        self._rows(DEVICE_INTERVALS, parked, order, extra)
        idle = link.flagged(kinds, [DeviceKind.IDLE])
        launched = ~np.isin(parked.codes(C.KIND, kinds)[order], idle)
        return Linked(int(launched.sum()), int((launched & (launches.call < 0)).sum()), launchers.count)

    def _write_steps(self, steps: link.Steps) -> None:
        if not len(steps.number):
            return
        columns = {
            C.RANK: pa.array(np.full(len(steps.number), self._place.rank, np.int32)),
            C.STEP: pa.array(steps.number),
            C.NAME: compact(np.arange(len(steps.name)), steps.name),
            C.START_NS: pa.array(steps.start - self._zero),
            C.DUR_NS: pa.array(steps.end - steps.start),
        }
        write_groups(STEPS, iter([pa.table(columns, schema=STEPS.arrow)]), self._place.path(STEPS))

    def _write_allocations(self, host: link.Host) -> None:
        parked = self._parked(ALLOCATIONS)
        time = parked.integers(C.T_NS)
        order = sorted_positions(
            time,
            lambda: parked.integers(C.TOTAL_ALLOCATED),
            lambda: parked.integers(C.ADDRESS),
            lambda: parked.integers(C.BYTES),
        )
        thread = link.thread_numbers(parked.integers(C.PID), parked.integers(C.TID))
        inside = host.innermost(thread[order], time[order])
        op = np.where(inside >= 0, host.op[inside], NONE) if len(host.op) else inside
        self._rows(ALLOCATIONS, parked, order, {C.OP_ROW: self._host_row(op)})

    def _write_counters(self) -> None:
        parked = self._parked(COUNTERS)
        order = sorted_positions(parked.integers(C.T_NS))
        self._rows(COUNTERS, parked, order, {})


def _row_ids(first: int) -> Computed:
    return lambda part: np.arange(first + part.start, first + part.stop)


def _device_order(parked: Parked) -> Ints:
    def key(column: str) -> Callable[[], Ints]:
        return lambda: parked.integers(column)

    return sorted_positions(
        parked.integers(C.START_NS),
        *map(key, (C.DUR_NS, C.DEVICE, C.STREAM, C.CORRELATION_ID)),
        lambda: parked.codes(C.NAME, parked.strings(C.NAME)),
        key(C.BYTES),
    )
