"""Time, memory and utilization of ResNet-50 over resolution and batch size."""

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
    Column("level", "", "execution mode"),
    Column("resolution", "", "image height and width"),
    Column("batch_size", "", "samples per step"),
    Column("outcome", "", "outcome of the measurement"),
    Column("step_ns", "ns", "median step time"),
    Column("sample_ns", "ns", "step time over batch size"),
    Column("host_peak_bytes", "bytes", "peak resident memory of the process"),
    Column(DEVICE[0], "bytes", "peak allocated memory"),
    Column(DEVICE[1], "bytes", "peak memory in use on the device, from NVML, as in the study"),
    Column(DEVICE[2], "share", "mean GPU utilization from NVML, as in the study"),
    Column(DEVICE[3], "share", "share of the profiled steps with a kernel running"),
)


def table(kind: Kind) -> Table:
    """Return a row per mode, level, resolution and batch size."""
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
            "Images of 3 channels in 20 classes; SGD. Median step time of the suite's runs; the study "
            "averaged 10 runs and published only plots, so there are no published numbers."
        ),
        source=f"{published.CURVES}, Fig. 5 to 11",
        columns=COLUMNS,
        rows=tuple(found),
    )
