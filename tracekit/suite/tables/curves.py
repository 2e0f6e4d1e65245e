"""Time, memory and utilization over resolution and batch size, in the form of the curves of ResNet-50."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import Table, filled, ratio, why
from tracekit.suite.plan import CURVES

if TYPE_CHECKING:
    from tracekit.suite.model import Kind

DEVICE = ("allocated_peak_bytes", "used_peak_bytes", "utilization", "active_share")
COLUMNS = (
    Column("mode", "", "train or infer"),
    Column("level", "", "how the model was run"),
    Column("resolution", "", "side of an image"),
    Column("batch_size", "", "samples in a step"),
    Column("outcome", "", "how the measurement ended"),
    Column("step_ns", "ns", "median step time"),
    Column("sample_ns", "ns", "step time over batch size"),
    Column("host_peak_bytes", "bytes", "peak resident memory of the process"),
    Column(DEVICE[0], "bytes", "peak of what the allocator handed out"),
    Column(DEVICE[1], "bytes", "most memory in use on the whole device, by NVML: what the study measured"),
    Column(DEVICE[2], "share", "mean GPU utilization by NVML: what the study measured"),
    Column(DEVICE[3], "share", "a kernel runs, of the profiled steps"),
)


def table(kind: Kind) -> Table:
    """One row per mode, level, resolution and batch size."""
    found = []
    for row in kind.part(CURVES):
        known = {**row.flat(), "sample_ns": ratio(row.step_ns, row.settings.batch_size)}
        reasons = dict.fromkeys((one.name for one in COLUMNS), why(row))
        reasons |= dict.fromkeys(DEVICE, why(row, device=True))
        found.append(filled(known, COLUMNS, reasons))
    return Table(
        name="curves",
        title="ResNet-50 over resolution and batch size",
        definition=(
            "Images of 3 channels in 20 classes; SGD. The study averaged 10 runs; this is the median step "
            "of the suite's runs. Its numbers are drawn, not tabled, so none stand beside."
        ),
        source=f"{published.CURVES}, Fig. 5 to 11",
        columns=COLUMNS,
        rows=tuple(found),
    )
