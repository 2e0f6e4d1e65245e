"""Calls in which a host thread waits for a device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import matches
from tracekit.runs.intervals import Ints
from tracekit.schema import C, DeviceKind, HostKind, Memory

from .common import spans
from .host_columns import HostColumns

SYNCHRONOUS_COPY = r"(?i)^(?:cuda|hip|cu)_?memcpy(?!.*async)"
"""Copies that block by their name: `cudaMemcpy`, `hipMemcpyWithStream`, `cuMemcpyDtoH_v2`."""
WAIT_COLUMNS = (C.KIND, C.START_NS, C.DUR_NS, C.LAUNCH_ROW, C.SRC_MEMORY, C.DST_MEMORY)
"""Columns of `device_intervals` needed to decide whether a copy blocked."""


def find_waits(host: HostColumns, device: pd.DataFrame) -> Ints:
    """Positions of the rows in which a thread waits for the device, by thread and start.

    These are the rows of kind `sync`, and copy calls that returned no earlier than the copy was done on the
    device, if they are synchronous by name or one end of the copy is pageable memory.

    Args:
        host: Host rows.
        device: The intervals that occupy a device, with the columns of `WAIT_COLUMNS`.
    """
    copies = device[device[C.KIND].astype(str) == DeviceKind.MEMCPY]
    call = host.positions(copies[C.LAUNCH_ROW])
    _, done = spans(copies)
    launched = call >= 0
    call, done = call[launched], done[launched]
    pageable = np.zeros(len(copies), np.bool_)
    for memory in (C.SRC_MEMORY, C.DST_MEMORY):
        pageable |= matches(copies[memory].astype("category"), f"^{Memory.PAGEABLE}$").to_numpy()
    blocked = host.end[call] >= done
    named = host.name_matches(SYNCHRONOUS_COPY)
    blocking = call[blocked & (pageable[launched] | named[call])]
    synchronized = np.flatnonzero(host.of_kind(HostKind.SYNC))
    return np.union1d(blocking, synchronized).astype(np.int64)


def first_ending_after(host: HostColumns, rows: Ints, thread: Ints, times: Ints) -> Ints:
    """The first of these waits that ends after each instant on its thread, -1 if none does.

    Args:
        host: Host rows.
        rows: Positions of waits, ascending.
        thread: Thread of each query.
        times: Instant of each query.
    """
    first = np.full(len(times), -1, np.int64)
    threads = host.thread[rows]
    for number in np.intersect1d(threads, thread):
        of_thread = rows[threads == number]
        queries = thread == number
        reach = np.maximum.accumulate(host.end[of_thread])
        place = np.searchsorted(reach, times[queries], side="right")
        first[queries] = np.where(
            place < len(of_thread), of_thread[np.minimum(place, len(of_thread) - 1)], -1
        )
    return first
