"""Reasons of slow launch calls that the trace shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.intervals import covered
from tracekit.schema import C, DeviceKind, HostKind

from .._idle.causes import NOT_PROFILER
from .._idle.waits import waits
from .launches import AT, DEPTH, KIND, PLACE

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from tracekit.intervals import Ints

    from .._shared.host_lines import HostLines

    Bools = npt.NDArray[np.bool_]

FULL_QUEUE = 1_000
"""The driver queues about 1,024 launches of a stream and then blocks the caller."""
ALLOCATES = r"(?i)(?:malloc|free|hostalloc|hostregister|moduleload)"

QUEUE_FULL = "the launch queue was full: the driver blocked the caller"
LOADS = "code was loaded at first use during the call"
PROFILER = "the profiler's own overhead covers most of the call"
BLOCKS = "a copy that blocks until it completes"
ALLOCATION = "another thread allocated memory, freed memory or loaded code during most of the call"
FIRST = "first launch of this kernel in the capture: its code may have been loaded"
NONE = ""


def reasons(
    slow: pd.DataFrame, table: pd.DataFrame, device: pd.DataFrame, host: HostLines
) -> npt.NDArray[np.object_]:
    """One reason for each slow launch, empty if the trace shows none.

    Args:
        slow: Some rows of `table`.
        table: Result of `_latency.launches.launches`.
        device: The intervals that occupy a device.
        host: Host rows.
    """
    rows = slow[AT].to_numpy()
    overhead, program = host.of_kind(HostKind.OVERHEAD), host.named(NOT_PROFILER)
    allocates = host.of_kind(HostKind.RUNTIME) & host.named(ALLOCATES)
    kernels = table[table[KIND] == DeviceKind.KERNEL]
    first = kernels.drop_duplicates([*PLACE, C.NAME])[AT]
    conditions = (
        (QUEUE_FULL, (slow[DEPTH] >= FULL_QUEUE).to_numpy(bool)),
        (LOADS, _during(host, rows, overhead & program, least=0.0)),
        (PROFILER, _during(host, rows, overhead & ~program, least=0.5)),
        (BLOCKS, np.isin(rows, waits(host, device))),
        (ALLOCATION, _during(host, rows, allocates, least=0.5)),
        (FIRST, np.isin(rows, first.to_numpy())),
    )
    found: npt.NDArray[np.object_] = np.select(
        [condition for _, condition in conditions], [np.array(text, object) for text, _ in conditions], NONE
    )
    return found


def _during(host: HostLines, rows: Ints, marked: Bools, *, least: float) -> Bools:
    """Whether marked rows of the rank cover more than the given share of each of these rows."""
    start, end, ranks = host.start[rows], host.end[rows], host.rank[rows]
    inside = np.zeros(len(rows), np.int64)
    for rank in np.unique(ranks):
        chosen = np.flatnonzero(marked & (host.rank == rank))
        own = ranks == rank
        inside[own] = covered(intervals.union(host.start[chosen], host.end[chosen]), start[own], end[own])
    return inside > least * (end - start)
