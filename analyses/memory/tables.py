"""Tables of `memory`."""

from __future__ import annotations

from tracekit.analysis import Column, TableSpec
from tracekit.schema import C

from ..shared.common import RANK, STEP
from .events import COLUMNS, OP

PEAK_COLUMNS = (
    Column(C.SOURCE, "", "source of the measurement"),
    Column(C.DEVICE, "", "device index; missing for the process on the host"),
    Column("measure", "", "measured quantity"),
    Column("size", "bytes", "peak"),
)
_DEVICE = Column(C.DEVICE, "", "device index; -1 is the host")
_SUMMARY = (
    RANK,
    _DEVICE,
    Column("peak_allocated", "bytes", "maximum allocated"),
    Column("peak_reserved", "bytes", "maximum reserved"),
    Column("fragmentation", "bytes", "unused at the peak: reserved minus allocated"),
    Column("peak_at_ns", "ns", "time of the peak since the run's t0"),
    Column("peak_step", "", "step of the peak; missing outside the profiled steps"),
    Column("peak_op", "", "op whose allocation reached the peak; empty if it was before the first event"),
    Column("start_allocated", "bytes", "allocated before the first event"),
    Column("end_allocated", "bytes", "allocated after the last event"),
    Column("most_fragmentation", "bytes", "maximum reserved minus allocated"),
    Column("allocations", "count", "number of allocations"),
    Column("frees", "count", "number of frees"),
    Column("unfreed", "count", "allocations not freed within the capture"),
    Column("unfreed_bytes", "bytes", "bytes of unfreed allocations"),
    Column("totals", "", "whether running totals were recorded or count from the capture's start"),
)
_LEAK = (
    RANK,
    _DEVICE,
    Column("growth", "bytes", "growth of the floor per step"),
    Column("growth_low", "bytes", "lower end of its 95% confidence interval"),
    Column("growth_high", "bytes", "upper end of its 95% confidence interval"),
    Column("steps", "count", "steps used: all but the first"),
    Column("first_floor", "bytes", "floor of the first step used"),
    Column("last_floor", "bytes", "floor of the last step used"),
)

TABLES = (
    TableSpec("summary", "Peaks, per device (-1 is the host)", _SUMMARY),
    TableSpec("peaks", "Peaks measured without a profiler", PEAK_COLUMNS),
    TableSpec("leak", "Growth from step to step", _LEAK),
    TableSpec(
        "by_op",
        "Allocated bytes by op",
        (
            RANK,
            _DEVICE,
            Column(OP, "", "innermost op that allocated"),
            Column("allocated", "bytes", "Σ of its allocations"),
            Column("live_at_peak", "bytes", "its allocations in use at the peak"),
            Column("unfreed", "bytes", "its allocations not freed within the capture"),
            Column("largest", "bytes", "its largest allocation"),
            Column("allocations", "count", "number of allocations"),
        ),
    ),
    TableSpec(
        "steps",
        "Allocated bytes per profiled step",
        (
            RANK,
            _DEVICE,
            STEP,
            Column("floor", "bytes", "minimum allocated within the step"),
            Column("peak", "bytes", "maximum allocated within the step"),
            Column("net", "bytes", "allocated at its end minus at its start"),
            Column("allocations", "count", "allocations in the step"),
        ),
    ),
    TableSpec("driver_calls", "Driver calls for device memory", COLUMNS),
    TableSpec(
        "timeline",
        "Allocated and reserved bytes over time",
        (
            RANK,
            _DEVICE,
            Column(C.T_NS, "ns", "time since the run's t0"),
            Column("allocated", "bytes", "allocated after the event"),
            Column("reserved", "bytes", "reserved after the event"),
        ),
    ),
)
