"""Processes and threads of an exported trace: one process per host process, per device, and for steps.

Numbers of processes stay below 2³¹; hosts of several ranks may share numbers, so each rank has a range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.export.lanes import Lanes
    from tracekit.export.reading import Source

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


def origin(source: Source) -> int:
    """Where times count from: the run's t0, or its first event where that is earlier."""
    starts = [0]
    for table in TABLES.values():
        column = C.T_NS if C.T_NS in table.arrow.names else C.START_NS
        firsts = [pc.min(batch[column]).as_py() for batch in source.batches(table.name, [column])]
        starts += [first for first in firsts if first is not None]
    return min(starts)


def named(source: Source, host: Lanes, device: Lanes) -> Iterator[dict[str, Any]]:
    """Names of processes and threads."""
    yield _name("process_name", COUNTERS, "counters", sort=3)
    for rank in sorted({row[0] for row in _different(source, "steps", C.RANK)}):
        yield _name("process_name", _STEPS + rank, f"rank {rank}: steps", sort=0)
    for rank, pid in _different(source, "host_intervals", C.RANK, C.PID):
        number = host_process(pa.array([rank]), pa.array([pid]))[0].as_py()
        yield _name("process_name", number, f"rank {rank}: process {pid}", sort=1)
    for rank, number in _different(source, "device_intervals", C.RANK, C.DEVICE):
        yield _name(
            "process_name", _DEVICES + rank * _PER_RANK + number, f"rank {rank}: device {number}", sort=2
        )
    for process, stream_ in device.tracks:
        yield _name("thread_name", process, _stream_name(stream_), tid=stream_)
    yield from _further(host, lambda thread_: f"thread {thread_}")
    yield from _further(device, _stream_name)


def _stream_name(number: int) -> str:
    return {IDLE_THREAD: "idle", _UNKNOWN_STREAM: "unknown stream"}.get(number, f"stream {number}")


def _further(lanes: Lanes, called: Callable[[int], str]) -> Iterator[dict[str, Any]]:
    for process, beside, number, place in lanes.further:
        yield _name("thread_name", process, f"{called(beside)}, crossing {place}", tid=number)


def _different(source: Source, table: str, *columns: str) -> list[tuple[int, ...]]:
    """The different rows of some columns, in order."""
    found: set[tuple[int, ...]] = set()
    for batch in source.batches(table, columns):
        kept = pa.Table.from_batches([batch]).group_by(list(columns)).aggregate([])
        found.update(zip(*(kept[column].to_pylist() for column in columns), strict=True))
    return sorted(found)


def _name(what: str, pid: int, name: str, *, tid: int = 0, sort: int | None = None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"name": name} if sort is None else {"name": name, "sort_index": sort}
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": arguments}
