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
    known = call >= 0
    call, done = call[known], done[known]
    pageable = np.zeros(len(copies), np.bool_)
    for memory in (C.SRC_MEMORY, C.DST_MEMORY):
        pageable |= matches(copies[memory].astype("category"), f"^{Memory.PAGEABLE}$").to_numpy()
    blocked = host.end[call] >= done
    named = host.name_matches(SYNCHRONOUS_COPY)
    found = call[blocked & (pageable[known] | named[call])]
    synchronized = np.flatnonzero(host.of_kind(HostKind.SYNC))
    return np.union1d(found, synchronized).astype(np.int64)


def first_ending_after(host: HostColumns, rows: Ints, thread: Ints, times: Ints) -> Ints:
    """The first of these waits that ends after each instant on its thread, -1 if none does.

    Args:
        host: Host rows.
        rows: Positions of waits, ascending.
        thread: Thread of each query.
        times: Instant of each query.
    """
    found = np.full(len(times), -1, np.int64)
    lanes = host.thread[rows]
    for lane in np.intersect1d(lanes, thread):
        own = rows[lanes == lane]
        queries = thread == lane
        reach = np.maximum.accumulate(host.end[own])
        place = np.searchsorted(reach, times[queries], side="right")
        found[queries] = np.where(place < len(own), own[np.minimum(place, len(own) - 1)], -1)
    return found
