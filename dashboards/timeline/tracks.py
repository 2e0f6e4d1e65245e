"""Which track each row of a table is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.schema import C, DeviceKind

from . import nesting, reading
from .lanes import ABSENT, ANNOTATION, DEVICE, HOST, IDLE, STEPS, Track

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

    from .reading import Text

_WORK, _WAITS, _IDLE = range(3)


def of_steps(run: Run) -> tuple[Ints, list[Track]]:
    """The track of each row of `steps`, as a number and by number."""
    codes, keys = reading.grouped(reading.read(run, "steps", C.RANK)[C.RANK])
    return codes, [Track(kind=STEPS, rank=rank) for (rank,) in keys]


def of_device(run: Run) -> tuple[Ints, list[Track]]:
    """The same of device intervals: streams, waits and idle time."""
    read = reading.read(run, "device_intervals", C.KIND, C.RANK, C.DEVICE, C.STREAM)
    kind: Text = read[C.KIND]
    sorts: dict[str, int] = {DeviceKind.SYNC: _WAITS, DeviceKind.IDLE: _IDLE}
    sort = np.array([sorts.get(value, _WORK) for value in kind.values], np.int64)[kind.codes]
    stream = np.where(sort == _WORK, read[C.STREAM], ABSENT)
    codes, keys = reading.grouped(sort, read[C.RANK], read[C.DEVICE], stream)
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


def of_host(run: Run) -> tuple[Ints, list[Track]]:
    """The same of host intervals: annotations and threads, by depth."""
    annotation, depth = nesting.depths(run)
    read = reading.read(run, "host_intervals", C.RANK, C.PID, C.TID)
    threads, keys = reading.grouped(read[C.RANK], read[C.PID], read[C.TID])
    del read
    codes, pairs = reading.grouped(threads, annotation.astype(np.int64), depth.astype(np.int64))
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
