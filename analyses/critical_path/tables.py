"""Tables of `critical_path`."""

from __future__ import annotations

from tracekit.analysis import Column, TableSpec
from tracekit.schema import C

from ..shared.common import RANK, STEP

_KIND = Column(C.KIND, "", "kind of segment")
_OP = Column(
    "op", "", "innermost op or annotation on the host; launching op, or kernel family, on the device"
)
_TIME = Column("path_ns", "ns", "time on the critical path")
_SHARE = Column("share", "share", "time on the path over the sum of the rank's windows")
_SEGMENTS = Column("segments", "count", "number of segments")

TABLES = (
    TableSpec("by_kind", "By kind, all windows of a rank", (RANK, _KIND, _TIME, _SHARE, _SEGMENTS)),
    TableSpec(
        "what_if",
        "What-if: step time with each part removed",
        (
            RANK,
            Column("removed", "", "part that takes no time"),
            Column("where", "", "device or host (self) time of an op, or all of a class"),
            Column("saving_ns", "ns", "saving per step"),
            Column("saving_share", "share", "saving over the time per step"),
            Column("new_step_ns", "ns", "time per step with the part removed"),
            Column("path_ns", "ns", "its time on the path, per step; for waits the time of the calls"),
        ),
    ),
    TableSpec("by_op", "By kind and op", (RANK, _KIND, _OP, _TIME, _SHARE, _SEGMENTS)),
    TableSpec(
        "segments",
        "The longest segments",
        (
            RANK,
            STEP,
            _KIND,
            _OP,
            Column(C.DUR_NS, "ns", "length of the segment"),
            Column(C.START_NS, "ns", "start, since the run's t0"),
            Column("device_row", "", "row in device_intervals that contains or follows the segment"),
            Column("host_row", "", "row in host_intervals that contains the segment"),
        ),
    ),
    TableSpec(
        "per_step",
        "By step and kind",
        (
            RANK,
            STEP,
            _KIND,
            _TIME,
            Column("share", "share", "time on the path over the step's window"),
            _SEGMENTS,
        ),
    ),
)
