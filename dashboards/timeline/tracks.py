"""Assign table rows to tracks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.schema import C, DeviceKind

from . import nesting, reading
from .lanes import ABSENT, ANNOTATION, DEVICE, HOST, IDLE, STEPS, Track

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.run import Run

    Codes = npt.NDArray[np.int32]

_WORK, _WAITS, _IDLE = range(3)


def of_steps(run: Run) -> tuple[Codes, list[Track]]:
    """Return the track number of each row of `steps`, and the tracks."""
    codes, keys = reading.grouped(reading.integers(run, "steps", C.RANK, dtype=np.int32))
    return codes, [Track(kind=STEPS, rank=rank) for (rank,) in keys]


def of_device(run: Run) -> tuple[Codes, list[Track]]:
    """Return the track number of each device interval, and the tracks: streams, waits and idle time."""
    table = "device_intervals"
    kind = reading.text(run, table, C.KIND)
    sorts: dict[str, int] = {DeviceKind.SYNC: _WAITS, DeviceKind.IDLE: _IDLE}
    sort = np.array([sorts.get(value, _WORK) for value in kind.values], np.int8)[kind.codes]
    stream = reading.integers(run, table, C.STREAM)
    stream[sort != _WORK] = ABSENT
    rank, device = (reading.integers(run, table, name, dtype=np.int32) for name in (C.RANK, C.DEVICE))
    codes, keys = reading.grouped(sort, rank, device, stream)
    return codes, [
        Track(
            kind=IDLE if sort == _IDLE else DEVICE,
            rank=rank,
            device=device,
            stream=stream,
            waits=sort == _WAITS,
        )
        for sort, rank, device, stream in keys
    ]


def of_host(run: Run) -> tuple[Codes, list[Track]]:
    """Return the track number of each host interval, and the tracks: annotations and threads by depth."""
    threads, keys = _threads(run)
    annotation, depth = nesting.depths(run)
    codes, pairs = reading.grouped(threads, annotation.view(np.int8), depth)
    return codes, [
        Track(
            kind=ANNOTATION if marked else HOST,
            rank=keys[thread][0],
            pid=keys[thread][1],
            tid=keys[thread][2],
            depth=depth,
        )
        for thread, marked, depth in pairs
    ]


def _threads(run: Run) -> tuple[Codes, list[tuple[int, ...]]]:
    """Return the thread number of each host row, and rank, process and thread id by number."""
    codes, keys = reading.grouped(reading.integers(run, "host_intervals", C.RANK))
    for name in (C.PID, C.TID):
        codes, pairs = reading.grouped(codes, reading.integers(run, "host_intervals", name))
        keys = [(*keys[before], value) for before, value in pairs]
    return codes, keys
