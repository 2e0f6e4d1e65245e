"""A decoded trace is completed and measured, before anything of it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tracekit.ingest import spool
from tracekit.ingest.link.idle import idle_batches
from tracekit.ingest.spool import Index
from tracekit.schema import DEVICE_INTERVALS, HOST_INTERVALS

if TYPE_CHECKING:
    from tracekit.ingest.trace import Trace

_IDLE_PART = 900_000
"""Number of the first part that idle rows are parked as: behind every decoded one."""


class Size(msgspec.Struct, frozen=True):
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
    decoded = Index(trace.directory)
    for number, idle in enumerate(idle_batches(decoded.table(DEVICE_INTERVALS.name))):
        spool.park(trace.directory, _IDLE_PART + number, {DEVICE_INTERVALS.name: idle})
    host = decoded.table(HOST_INTERVALS.name).heads
    work = Index(trace.directory).table(DEVICE_INTERVALS.name).heads
    if not host and not work:
        return None
    base = trace.top.base_ns
    first, last = min(each.first for each in host + work), max(each.end for each in host + work)
    return Size(sum(each.rows for each in host), sum(each.rows for each in work), first + base, last + base)
