"""Time shares by workload, after TorchBench, Fig. 1 and 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Column
from tracekit.suite import published
from tracekit.suite.model import Table, filled, why

if TYPE_CHECKING:
    from tracekit.suite.model import Kind

SHARES = ("active_share", "movement_share", "idle_share")
COLUMNS = (
    Column("workload", "", "what ran"),
    Column("domain", "", "application domain"),
    Column("mode", "", "train or infer"),
    Column("batch_size", "", "samples per step"),
    Column("resolution", "", "resolution, as defined by the workload"),
    Column("active_share", "share", "share with a kernel running"),
    Column("movement_share", "share", "share with a copy but no kernel running"),
    Column("idle_share", "share", "share with nothing running"),
    Column("step_ns", "ns", "median step time without a profiler"),
    Column("samples_per_second", "count", "batch size over step time"),
    Column("run_id", "id", "run with the median step time"),
)


def table(kind: Kind) -> Table:
    """Return a row per workload and mode."""
    found = []
    for row in kind.eager():
        known = {**row.flat(), "domain": kind.domains[row.settings.workload]}
        reasons = dict.fromkeys((one.name for one in COLUMNS), why(row))
        reasons |= dict.fromkeys(SHARES, why(row, device=True))
        found.append(filled(known, COLUMNS, reasons))
    return Table(
        name="workloads",
        title="Active, movement and idle time by workload",
        definition="Shares of the profiled steps on the busiest device; they sum to 1. Eager mode.",
        source=f"{published.TORCHBENCH}, Fig. 1 and 2",
        columns=COLUMNS,
        rows=tuple(found),
    )
