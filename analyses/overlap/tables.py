"""Tables of `overlap`."""

from __future__ import annotations

from tracekit.analysis import Column, TableSpec
from tracekit.schema import C

from ..shared.common import DEVICE, RANK, STEP
from .exposed import WHAT

_OVERLAP = (
    Column("union_ns", "ns", "time at least one runs"),
    Column("exposed_ns", "ns", "time at least one runs and no (other) kernel does"),
    Column("overlapped_ns", "ns", "time at least one runs together with an (other) kernel"),
    Column("overlapped_share", "share", "overlapped over union"),
)
_PLAIN = (
    Column("sum_ns", "ns", "Σ of durations, overlaps counted twice"),
    Column("count", "count", "number of copies or communication kernels"),
)
_WHAT = Column(WHAT, "", "communication, all copies, or the copies of one direction")

TABLES = (
    TableSpec(
        "whole",
        "Whole capture, per device",
        (
            RANK,
            DEVICE,
            _WHAT,
            *_OVERLAP,
            *_PLAIN,
            Column(C.BYTES, "bytes", "bytes copied; missing if unknown, and for communication"),
        ),
    ),
    TableSpec("profiled_steps", "Union of the profiled steps, per device", (RANK, DEVICE, _WHAT, *_OVERLAP)),
    TableSpec(
        "collectives",
        "Communication by kind of collective, whole capture",
        (
            RANK,
            DEVICE,
            Column("collective", "", "kind, by the names of the kernel and its launching op"),
            *_OVERLAP,
            *_PLAIN,
        ),
    ),
    TableSpec(
        "streams",
        "Concurrent work on several streams, whole capture",
        (
            RANK,
            DEVICE,
            Column("streams", "count", "streams with work"),
            Column("busy_ns", "ns", "time at least one stream is busy"),
            Column("concurrent_ns", "ns", "time at least two streams are busy"),
            Column("concurrent_share", "share", "concurrent over busy"),
            Column("most_streams", "count", "maximum number of streams busy at once"),
            Column("sum_ns", "ns", "Σ over the streams of the time each is busy"),
        ),
    ),
    TableSpec("per_step", "Per profiled step and device", (RANK, DEVICE, _WHAT, STEP, *_OVERLAP)),
)
