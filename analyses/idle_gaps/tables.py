"""Columns of the tables of `idle_gaps`."""

from __future__ import annotations

from tracekit.analysis import Column
from tracekit.analysis.idle_causes import CAUSES, HOST_LAUNCHES, QUEUED
from tracekit.analysis.idle_causes import IdleCause as Cause
from tracekit.schema import C

from ..shared.common import DEVICE, RANK, duration
from ..shared.idle_neighbors import AFTER, BEFORE
from .causes import (
    ANCHOR_ROW,
    CALL,
    CAUSE,
    COMMON_OP,
    HOST_NS,
    NEXT_OP,
    OP,
    QUEUED_NS,
    SOURCE,
    WAIT_NS,
    WAIT_ROW,
)

MIN_LISTED_NS = 1_000
"""Minimum length of a listed gap: shorter ones are below the resolution of traces in whole µs."""
IDLE_NS = "idle_ns"
HOST_LATE = (*HOST_LAUNCHES, Cause.SYNC, Cause.DATALOAD, Cause.PROFILER)
_CAUSE = Column(CAUSE, "", f"one of {', '.join(CAUSES)}")
_OP = Column(OP, "", "op, annotation or frame that delayed the device; for queued work the launching op")
_SOURCE = Column(SOURCE, "", "user's source line of that op; empty if no stack was recorded")
_COUNT = Column("gaps", "count", "number of gaps")
_SUM = Column(IDLE_NS, "ns", "Σ of gap lengths")
_LONGEST = Column("longest_ns", "ns", "longest gap")
_SHARE = Column("share", "share", "share of the device's idle time")
BY_CAUSE = (
    RANK,
    DEVICE,
    _CAUSE,
    _SUM,
    _SHARE,
    _COUNT,
    Column("per_step_ns", "ns", "idle time inside the profiled steps, per step of the rank"),
    _LONGEST,
    Column("steps_ns", "ns", "idle time inside the profiled steps; missing if none are marked"),
    Column(
        "aside_ns",
        "ns",
        "its part (without steps, that of the capture) at an edge of the capture or in marked warm-up",
    ),
)
BY_OP = (
    *(_CAUSE, _OP, _SUM, _SHARE, _COUNT, _LONGEST, _SOURCE, RANK, DEVICE),
    Column("longest_row", "", "row of the longest gap in device_intervals"),
)
GAPS = (
    *(RANK, DEVICE),
    Column(C.START_NS, "ns", "start of the gap"),
    Column(C.DUR_NS, "ns", "length of the gap"),
    *(_CAUSE, _OP),
    Column(
        CALL, "", "runtime call that covers most of the host's part, that waited, or that queued the work"
    ),
    _SOURCE,
    Column(NEXT_OP, "", "innermost op that launched the interval after the gap"),
    Column(COMMON_OP, "", "innermost op around the ops that launched before and after; empty without one"),
    Column(BEFORE, "", "interval that ends at the start of the gap"),
    Column(AFTER, "", "interval that starts at the end of the gap"),
    Column(HOST_NS, "ns", "the host's part: from the gap's start to the launch; missing without a launch"),
    Column(QUEUED_NS, "ns", "the part of the gap during which the next work was queued"),
    Column(
        WAIT_NS, "ns", "length of the wait that began before the gap and ended in it; missing without one"
    ),
    Column(C.STEP, "", "profiled step of the work after the gap, else that in which the gap begins"),
    Column(C.ROW_ID, "", "row of the gap in device_intervals"),
    Column(ANCHOR_ROW, "", "row of the op, or of the next op or launch, in host_intervals"),
    Column(C.LAUNCH_ROW, "", "row of the next launch in host_intervals"),
    Column(WAIT_ROW, "", "row of the wait in host_intervals"),
)
SUMMARY = (
    *(RANK, DEVICE),
    Column(IDLE_NS, "ns", "idle time of the device: the sum of all its gaps"),
    Column("idle_share", "share", "idle time over the window"),
    Column("host_late_ns", "ns", f"gaps with a late host: {', '.join(map(str, HOST_LATE))}"),
    Column("had_work_ns", "ns", f"gaps with queued work: {', '.join(map(str, QUEUED))}"),
    Column("unknown_ns", "ns", "gaps without a known cause"),
    _COUNT,
    Column("listed", "count", f"gaps of {duration(MIN_LISTED_NS)} and more, shown in the table gaps"),
    Column("median_ns", "ns", "lower median of the gap lengths"),
    _LONGEST,
    Column("window_ns", "ns", "first start to last end on the device"),
    Column("edges_ns", "ns", "time of the profiled steps outside that window, not counted as idle"),
)
