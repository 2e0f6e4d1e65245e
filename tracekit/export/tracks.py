"""Processes and threads of an exported trace: one process per host process, per device, and for steps.

Numbers of processes stay below 2³¹; hosts of several ranks may share numbers, so each rank has a range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.run import Run

_RANK_RANGE: Final = 10_000_000
_DEVICES: Final = 1_900_000_000
_PER_RANK: Final = 1_000
_STEPS: Final = 1_800_000_000
COUNTERS: Final = 1_799_999_999
IDLE_THREAD: Final = 2_000_000_000
_UNKNOWN_STREAM: Final = 1_999_999_999
_TID_RANGE: Final = 1 << 31


def text(values: pa.Array) -> pa.Array:
    """Numbers as text."""
    return values.cast(pa.string())


def host_process(rank: pa.Array, pid: pa.Array) -> pa.Array:
    """Process of a host interval."""
    return pc.add(pc.multiply(rank.cast(pa.int64()), _RANK_RANGE), _within(pid, _RANK_RANGE))


def thread(tid: pa.Array) -> pa.Array:
    """Thread of a host interval, cut to what viewers take."""
    return _within(tid, _TID_RANGE)


def device_process(rank: pa.Array, device: pa.Array) -> pa.Array:
    """Process of a device interval."""
    scaled = pc.multiply(rank.cast(pa.int64()), _PER_RANK)
    return pc.add(pc.add(scaled, device.cast(pa.int64())), _DEVICES)


def stream(streams: pa.Array) -> pa.Array:
    """Thread of a device interval."""
    return pc.fill_null(streams, _UNKNOWN_STREAM)


def steps_process(rank: pa.Array) -> pa.Array:
    """Process that holds the steps of a rank."""
    return pc.add(rank.cast(pa.int64()), _STEPS)


def _within(values: pa.Array, size: int) -> pa.Array:
    size_ = pa.scalar(size, pa.int64())
    positive = pc.abs(values)
    return pc.subtract(positive, pc.multiply(pc.divide(positive, size_), size_))


def origin(run: Run) -> int:
    """Where times count from: the run's t0, or its first event where that is earlier."""
    starts = [0]
    for table, column in (
        ("host_intervals", C.START_NS),
        ("device_intervals", C.START_NS),
        ("steps", C.START_NS),
        ("counters", C.T_NS),
        ("allocations", C.T_NS),
    ):
        first = pc.min(run.arrow(table, columns=[column])[column]).as_py()
        starts += [] if first is None else [first]
    return min(starts)


def named(run: Run) -> Iterator[dict[str, Any]]:
    """Names of processes and threads."""
    yield _name("process_name", COUNTERS, "counters", sort=3)
    for rank in _different(run, "steps", C.RANK)[C.RANK].to_pylist():
        yield _name("process_name", _STEPS + rank, f"rank {rank}: steps", sort=0)
    hosts = _different(run, "host_intervals", C.RANK, C.PID)
    numbers = host_process(hosts[C.RANK].combine_chunks(), hosts[C.PID].combine_chunks()).to_pylist()
    for number, row in zip(numbers, hosts.to_pylist(), strict=True):
        yield _name("process_name", number, f"rank {row[C.RANK]}: process {row[C.PID]}", sort=1)
    yield from _devices(run)


def _devices(run: Run) -> Iterator[dict[str, Any]]:
    found = _different(run, "device_intervals", C.RANK, C.DEVICE)
    numbers = device_process(found[C.RANK].combine_chunks(), found[C.DEVICE].combine_chunks()).to_pylist()
    for number, row in zip(numbers, found.to_pylist(), strict=True):
        yield _name("process_name", number, f"rank {row[C.RANK]}: device {row[C.DEVICE]}", sort=2)
        yield _name("thread_name", number, "idle", tid=IDLE_THREAD)
        yield _name("thread_name", number, "unknown stream", tid=_UNKNOWN_STREAM)
    lanes = _different(run, "device_intervals", C.RANK, C.DEVICE, C.STREAM)
    for row in lanes.to_pylist():
        if row[C.STREAM] is not None:
            number = _DEVICES + row[C.RANK] * _PER_RANK + row[C.DEVICE]
            yield _name("thread_name", number, f"stream {row[C.STREAM]}", tid=row[C.STREAM])


def _different(run: Run, table: str, *columns: str) -> pa.Table:
    return run.arrow(table, columns=columns).group_by(list(columns)).aggregate([]).sort_by(columns[0])


def _name(what: str, pid: int, name: str, *, tid: int = 0, sort: int | None = None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"name": name} if sort is None else {"name": name, "sort_index": sort}
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": arguments}
